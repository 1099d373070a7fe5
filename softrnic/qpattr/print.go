package qpattr

import (
	"fmt"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Print returns the table as a program's author reads it: a line for each transition and service
// with the attributes that it needs and those that it takes.
func Print() string {
	var b strings.Builder
	for from := verbs.StateReset; from <= verbs.StateError; from++ {
		for to := verbs.StateReset; to <= verbs.StateError; to++ {
			e := edge{from, to}
			if !e.legal() {
				continue
			}
			for _, service := range all {
				must, may := Of(service, from, to)
				fmt.Fprintf(&b, "%-5v -> %-5v %v", from, to, service)
				if must != 0 {
					fmt.Fprintf(&b, "\n    needs %v", must)
				}
				if may != 0 {
					fmt.Fprintf(&b, "\n    takes %v", may)
				}
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}
