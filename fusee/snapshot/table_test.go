package snapshot

import (
	"fmt"
	"strings"
)

// Table prints the state diagram, one edge a line.
func Table() string {
	var b strings.Builder
	for _, e := range edges {
		fmt.Fprintf(&b, "%-10v  %-10v  %-10v  %v\n", e.from, e.on, e.to, e.does)
	}
	return b.String()
}
