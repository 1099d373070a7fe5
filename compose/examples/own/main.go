// Command mine is rdmalab with a switch program, a fault, a congestion control and a store of its own.
package main

import (
	_ "example.com/own/hundredth" // the switch program hundredth
	_ "example.com/own/patient"   // the congestion control patient
	_ "example.com/own/shelf"     // the store shelf
	_ "example.com/own/stutter"   // the fault stutter

	"github.com/rdmalab/rdmalab/cli"
)

func main() { cli.Main() }
