# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small language client: `client.py SERVER COMMAND FILE ...`.

`diagnose FILE...` opens each file and prints the diagnostics that come back, as
`FILE:LINE:COLUMN: MESSAGE`, or `FILE: none`. `hover FILE TEXT` and `definition
FILE TEXT` ask about the first place in the file where TEXT is.
"""

import json
import pathlib
import subprocess
import sys


class Client:
    """One server, initialized."""

    def __init__(self, server):
        self.process = subprocess.Popen(
            [server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.requests = 0
        self.diagnostics = {}
        self.capabilities = self.request(
            "initialize", {"processId": None, "rootUri": None, "capabilities": {}}
        )["capabilities"]
        self.notify("initialized", {})

    def send(self, message):
        """Writes one message with its header."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def receive(self):
        """Reads one message; keeps the diagnostics of each document."""
        length = None
        while (line := self.process.stdout.readline().strip()) or length is None:
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
            elif not line and self.process.poll() is not None:
                sys.exit(f"the server ended with {self.process.returncode}")
        message = json.loads(self.process.stdout.read(length))
        if message.get("method") == "textDocument/publishDiagnostics":
            self.diagnostics[message["params"]["uri"]] = message["params"]["diagnostics"]
        return message

    def notify(self, method, params):
        """Sends what has no answer."""
        self.send({"method": method, "params": params})

    def request(self, method, params):
        """Sends a request and waits for its answer."""
        self.requests += 1
        self.send({"id": self.requests, "method": method, "params": params})
        while True:
            message = self.receive()
            if message.get("id") == self.requests:
                if "error" in message:
                    sys.exit(f"{method}: {message['error']}")
                return message["result"]

    def open(self, path):
        """Opens a document and waits for its diagnostics."""
        uri = path.resolve().as_uri()
        document = {"uri": uri, "languageId": "mlir", "version": 1, "text": path.read_text()}
        self.notify("textDocument/didOpen", {"textDocument": document})
        while uri not in self.diagnostics:
            self.receive()
        return uri

    def ask(self, method, path, text):
        """The answer to a request about the first place where `text` is."""
        uri = self.open(path)
        before = path.read_text().split(text, 1)[0]
        line = before.count("\n")
        position = {"line": line, "character": len(before) - before.rfind("\n") - 1}
        return self.request(method, {"textDocument": {"uri": uri}, "position": position})

    def close(self):
        """Ends the server as a client should; fails if it does not end well."""
        self.request("shutdown", None)
        self.notify("exit", None)
        self.process.stdin.close()
        if self.process.wait(timeout=60) != 0:
            sys.exit(f"the server ended with {self.process.returncode}")


def main():
    """Runs one command."""
    server, command, *arguments = sys.argv[1:]
    client = Client(server)
    if command == "diagnose":
        for name in arguments:
            path = pathlib.Path(name)
            found = client.diagnostics[client.open(path)]
            for diagnostic in found:
                start = diagnostic["range"]["start"]
                place = f"{path.name}:{start['line'] + 1}:{start['character'] + 1}"
                print(f"{place}: {diagnostic['message']}")
            if not found:
                print(f"{path.name}: none")
    elif command == "hover":
        print(client.ask("textDocument/hover", pathlib.Path(arguments[0]), arguments[1]))
    elif command == "definition":
        print(client.ask("textDocument/definition", pathlib.Path(arguments[0]), arguments[1]))
    else:
        sys.exit(f"unknown command {command}")
    client.close()


if __name__ == "__main__":
    main()
