// Command rdmalab is the whole project in one binary; package cli has its commands.
package main

import "github.com/rdmalab/rdmalab/cli"

func main() { cli.Main() }
