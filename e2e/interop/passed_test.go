package interop_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// program is a row of the table's second part: a program of the guest that has worked with our end.
type program struct{ name, role, what string }

var programs []program

// passed records that a spec with a program of the guest in a role has succeeded.
func passed(name, role, what string) { programs = append(programs, program{name, role, what}) }

// death is a row of the table's last part.
type death struct{ how, who, when, ours string }

var deaths []death

// died records that a spec in which one side died has succeeded.
func died(how, who, when, ours string) { deaths = append(deaths, death{how, who, when, ours}) }

// deathTable returns the text of that part.
func deathTable() string {
	var b strings.Builder
	b.WriteString("\n## Deaths\n\nWhat our end is told when the other one dies, and nothing of the connection is left here.\n\n| what happens | to | within | our end | |\n| --- | --- | --- | --- | --- |\n")
	for _, d := range sorted(deaths) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", d.how, d.who, d.when, d.ours, mark(true))
	}
	return b.String()
}

// sorted sorts rows, because the order of specs varies.
func sorted[T any](rows []T) []T {
	return slices.SortedFunc(slices.Values(rows), func(a, b T) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}

// programTable returns the text of that part.
func programTable() string {
	var b strings.Builder
	b.WriteString("\n## Programs\n\nPrograms of the guest, unchanged, and what they did with our end as the other one.\n\n| program | its role | what | |\n| --- | --- | --- | --- |\n")
	for _, p := range sorted(programs) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p.name, p.role, p.what, mark(true))
	}
	return b.String()
}

// family is what librdmacm's examples call an address family.
func family(a netip.Addr) string {
	if a.Is4() {
		return "ip"
	}
	return "ip6"
}
