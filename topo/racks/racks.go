// Package racks has the rack files that are built into the program.
package racks

import _ "embed"

//go:embed default.yaml
var defaultRack string

// DefaultName is the name of Default's file in error messages.
const DefaultName = "default.yaml (built in)"

// Default returns the text of the default rack file.
func Default() []byte { return []byte(defaultRack) }
