package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// table is the outcome for all sections.
type table struct {
	sections []section
	reached  map[cell]string
	// missing are the cells that a test must reach and none does. impossible are the cells that a test
	// reaches although the model says that they are impossible. Both are mistakes of the tests or of
	// the model.
	missing, impossible []cell
	must, may, can      int // reached cells that must be reached; reached cells that may be; all cells that must be
}

// tally compares what was reached with the model.
func tally(list []section, reached map[cell]string) *table {
	t := &table{sections: list, reached: reached}
	for i := range list {
		for c, r := range list[i].cells() {
			t.count(&list[i], c, r)
		}
	}
	return t
}

func (t *table) count(s *section, c cell, r row) {
	hit := t.reached[c] != ""
	switch mark := s.mark(c.state, r, c.fate); {
	case mark == markNever && hit:
		t.impossible = append(t.impossible, c)
	case mark == markMissing:
		t.can++
		if hit {
			t.must++
		} else {
			t.missing = append(t.missing, c)
		}
	case hit:
		t.may++
	}
}

// Marks of cells that no test has reached.
const (
	markMissing = "✗"
	markMay     = "·"
	markNever   = ""
)

// print writes a Markdown table for each section.
func (t *table) print(w io.Writer, full bool) {
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) } // to the terminal
	p("# What the tests have seen happen to queue pairs\n\nLetters say which tests: t transport, e engine, s simulator. %s: none, and one must. %s: none, and none must.\n"+
		"Empty: cannot be, for the reasons below each table.\n", markMissing, markMay)
	for i := range t.sections {
		s := &t.sections[i]
		p("\n## %s\n\n| | state | %s |\n| --- | --- |%s\n", s.title, strings.Join(s.fates, " | "), strings.Repeat(" --- |", len(s.fates)))
		for _, r := range s.rows {
			for _, state := range s.states {
				cells := make([]string, len(s.fates))
				for k, fate := range s.fates {
					cells[k] = t.text(s, state, r, fate)
				}
				p("| %s | %s | %s |\n", r.name, state, strings.Join(cells, " | "))
			}
		}
		p("\n")
		for _, why := range s.reasons() {
			p("- %s\n", why)
		}
		if full {
			t.explain(s, p)
		}
	}
	p("\n%d of %d cells that a test must reach are reached, and %d others.\n", t.must, t.can, t.may)
	for _, c := range t.missing {
		p("MISSING     %v\n", c)
	}
	for _, c := range t.impossible {
		p("IMPOSSIBLE  %v, by %s: the model is wrong\n", c, t.reached[c])
	}
}

func (t *table) text(s *section, state string, r row, fate string) string {
	if hit := t.reached[cell{s.of, state, r.name, fate}]; hit != "" {
		letters := strings.Split(hit, "")
		slices.Sort(letters)
		return strings.Join(letters, "")
	}
	return s.mark(state, r, fate)
}

// mark returns the mark of a cell that no test has reached.
func (s *section) mark(state string, r row, fate string) string {
	switch {
	case s.reason(state, r, fate) != "":
		return markNever
	case s.must(state, r, fate):
		return markMissing
	}
	return markMay
}

// reasons lists the reasons for impossible cells in the section, with the fates that they are for.
func (s *section) reasons() (out []string) {
	for i := range s.never {
		n := &s.never[i]
		used := false
		for c, r := range s.cells() {
			used = used || s.reason(c.state, r, c.fate) == n.why && n.fits(c.state, r, c.fate)
		}
		about := "other columns"
		if n.fates != nil && len(n.fates) <= 4 {
			about = strings.Join(n.fates, ", ")
		}
		if n.states != nil {
			about += " in " + strings.Join(n.states, ", ")
		}
		if used {
			out = append(out, about+": "+n.why)
		}
	}
	return out
}

// explain prints each impossible cell with its reason.
func (t *table) explain(s *section, p func(string, ...any)) {
	for c, r := range s.cells() {
		if why := s.reason(c.state, r, c.fate); why != "" {
			p("  - %v: %s\n", c, why)
		}
	}
}
