// Package racks holds the rack files that come with the program.
package racks

import _ "embed"

//go:embed default.yaml
var defaultRack string

// DefaultName is what errors call the file that Default returns.
const DefaultName = "default.yaml (built in)"

// Default is the text of the default rack file.
func Default() []byte { return []byte(defaultRack) }
