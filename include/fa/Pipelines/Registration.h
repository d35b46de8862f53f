// Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef FA_PIPELINES_REGISTRATION_H
#define FA_PIPELINES_REGISTRATION_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace fa {

/// Dialects that attention IR files and the algorithm and tile levels use,
/// with the interface implementations that fa's passes rely on.
void registerDialects(mlir::DialectRegistry &registry);

/// Every pass and the pipeline `fa-pipeline`.
void registerPasses();

} // namespace fa

#endif // FA_PIPELINES_REGISTRATION_H
