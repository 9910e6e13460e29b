//! Chores of the workspace, each a subcommand in a module of its own: `cargo xtask --help`.
#![allow(clippy::disallowed_methods)] // chores run in real time

mod bench;
mod bugs;
mod cargo;
mod checks;
mod lab;
mod protobuf;
mod simulate;
mod test;
mod tour;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of the restow workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Measure restow beside others on a real control plane.
    Bench(bench::Bench),
    /// Measure how fast `restow audit` reads a large file of etcd.
    BenchAudit(bench::audit::BenchAudit),
    /// Measure conversion webhooks: by rules, by Rust code, and in Go with controller-runtime.
    BenchConvert(bench::convert::BenchConvert),
    /// Measure what a run on very many objects takes: memory, bytes on the wire, work of the API server.
    BenchLarge(bench::large::BenchLarge),
    /// Measure what it costs API servers to register their storage versions.
    BenchRegistration(bench::registration::BenchRegistration),
    /// Measure the embedded API server beside kube-apiserver and etcd.
    BenchServers(bench::servers::BenchServers),
    /// Put known defects back, one at a time, and require the simulation to catch each of them.
    Bugs(bugs::Bugs),
    /// Check that no crate has cycles between modules or unused dependencies, and that the core reaches no client.
    Checks,
    /// A real control plane on this machine, to try things on.
    #[command(subcommand)]
    Lab(lab::Command),
    /// Write the table by which the embedded API server reads protobuf bodies, from Kubernetes' Go types.
    ProtobufFields(protobuf::ProtobufFields),
    /// Simulate clusters that go wrong in ways drawn from seeds: `--seeds N`, `--from S`, `--seed S` to replay one,
    /// `--real` for the same on real control planes.
    Simulate(simulate::Simulate),
    /// Run everything that must pass before a change lands.
    Test,
    /// See restow do its job on a real control plane.
    Tour(tour::Tour),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().chore {
        Chore::Bench(bench) => bench::run(bench).await,
        Chore::BenchAudit(bench) => bench::audit::run(bench).await,
        Chore::BenchConvert(bench) => bench::convert::run(bench).await,
        Chore::BenchLarge(bench) => bench::large::run(bench).await,
        Chore::BenchRegistration(bench) => bench::registration::run(bench).await,
        Chore::BenchServers(bench) => bench::servers::run(bench).await,
        Chore::Bugs(bugs) => bugs::run(&bugs),
        Chore::Checks => checks::run(),
        Chore::Lab(command) => lab::run(command).await,
        Chore::ProtobufFields(chore) => protobuf::run(&chore),
        Chore::Simulate(simulate) => simulate::run(&simulate),
        Chore::Test => test::run(),
        Chore::Tour(tour) => tour::run(&tour).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
