package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/reason"
)

// reasonsTable makes the table of the reasons of errors.
func reasonsTable(*testing.T) string {
	var b strings.Builder
	fmt.Fprintln(&b, "| number | who knows it | status of the completion | because | look at |\n| --- | --- | --- | --- | --- |")
	for _, r := range reason.Table() {
		var statuses []string
		for _, s := range r.Statuses {
			statuses = append(statuses, fmt.Sprintf("%d, %v", s, s))
		}
		fmt.Fprintf(&b, "| %#x | %s | %s | %s | %s |\n", uint32(r.Code), r.Side, either(len(statuses) > 0, strings.Join(statuses, "; "), "none"), r.Text, r.Look)
	}
	return b.String()
}
