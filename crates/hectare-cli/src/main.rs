//! The program `hectare`; all of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    hectare_cli::main()
}
