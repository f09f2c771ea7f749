# The commands of the project. Everything else is in `cargo xtask`.
.PHONY: demo test build fmt lint clean

# Turns a folder (DEMO_FROM=..., or the host's documentation) into an image, checks it and looks at it.
demo:
	cargo run -q --release -p xtask -- demo

# Every check: formatting, lints, tidy, all tests. The last line counts them.
# All is built at once: xtask alone would be built with fewer features, and half of it again for the tests.
test: export CARGO_TARGET_DIR ?= $(CURDIR)/target
test:
	cargo build --workspace --bin xtask --tests
	"$$CARGO_TARGET_DIR/debug/xtask" test

build:
	cargo build --release

fmt:
	cargo fmt --all

lint:
	cargo clippy --workspace --all-targets -- -D warnings
	cargo run -q -p xtask -- tidy

clean:
	cargo clean
	rm -rf out
