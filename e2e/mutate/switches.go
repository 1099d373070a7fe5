package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// switches is a package's source with all changes compiled in, each behind a switch. The
// environment variable MUTANT has the number of the change that is switched on. So the tests are
// built only once.
type switches struct {
	ids   map[*mutant]int // numbers of changes, from 1; a change without a number has no switch
	files map[string][]byte
}

// piece is a text that is inserted into a source file at offset at, in place of over bytes.
type piece struct {
	at, over int
	text     string
	ends     bool // the text closes the parentheses of an earlier piece
	of       *mutant
}

// newSwitches puts the changes into the source. It leaves out changes whose switches do not
// compile, such as the change of a constant that is the length of an array.
func (c *checker) newSwitches(pkg string, all []mutant) (*switches, error) {
	s := &switches{ids: map[*mutant]int{}}
	typed := c.typed()
	for i := range all {
		if !strings.HasPrefix(all[i].old(), "panic(") { // the compiler may need the panic as the end of a function
			s.ids[&all[i]] = i + 1
		}
	}
	support := filepath.Join(pkg, "switches_of_mutants.go")
	for {
		s.files = map[string][]byte{support: supportSource(c.name, len(all)+1)}
		ranges := map[string][]piece{} // where the changes are in the new source
		for name := range c.files {
			s.rewrite(name, all, typed, ranges)
		}
		errs := c.check(s.files, nil)
		if len(errs) == 0 {
			return s, nil
		}
		drop := map[*mutant]bool{}
		for _, e := range errs {
			p := c.set.Position(e.Pos)
			inner := piece{over: len(s.files[p.Filename]) + 1}
			for _, r := range ranges[p.Filename] {
				if r.at <= p.Offset && p.Offset <= r.at+r.over && r.over < inner.over {
					inner = r
				}
			}
			if inner.of != nil {
				drop[inner.of] = true
				continue
			}
			for _, r := range ranges[p.Filename] { // the error is outside of all changes: leave out those in its line
				if 1+bytes.Count(s.files[p.Filename][:r.at], []byte("\n")) == p.Line {
					drop[r.of] = true
				}
			}
		}
		if len(drop) == 0 {
			return nil, fmt.Errorf("with switches it does not compile: %w", errs[0])
		}
		for m := range drop {
			delete(s.ids, m)
		}
	}
}

// rewrite makes the source of one file.
func (s *switches) rewrite(name string, all []mutant, typed map[place]string, ranges map[string][]piece) {
	var pieces []piece
	var src []byte
	for i := range all {
		m := &all[i]
		if id := s.ids[m]; m.file == name && id != 0 {
			src = m.src
			pieces = append(pieces, m.pieces(id, typed[place{name, m.from, m.to}])...)
		}
	}
	if src == nil {
		return
	}
	// If an expression and its first operand are both changed, their pieces are at the same place.
	// There the piece that opens the expression must come first, and the piece that closes it must
	// come after the operand's. The stable sort keeps the order of all, in which an expression comes
	// before its operands; closing pieces are reversed below.
	slices.SortStableFunc(pieces, func(a, b piece) int {
		if a.at != b.at {
			return a.at - b.at
		}
		return rank(a) - rank(b)
	})
	for i := 0; i < len(pieces); {
		j := i
		for j < len(pieces) && pieces[j].at == pieces[i].at && pieces[j].ends {
			j++
		}
		slices.Reverse(pieces[i:j])
		i = max(j, i+1)
	}
	var out strings.Builder
	opened := map[*mutant]int{}
	at := 0
	for _, p := range pieces {
		out.Write(src[at:p.at])
		at = p.at + p.over
		if _, ok := opened[p.of]; !ok {
			opened[p.of] = out.Len()
		}
		out.WriteString(p.text)
		if p.ends {
			ranges[name] = append(ranges[name], piece{at: opened[p.of], over: out.Len() - opened[p.of], of: p.of})
		}
	}
	out.Write(src[at:])
	s.files[name] = []byte(out.String())
}

// rank is the order of pieces at the same offset: closing ones, opening ones, replacements.
func rank(p piece) int {
	switch {
	case p.ends:
		return 0
	case p.over == 0:
		return 1
	}
	return 2
}

// pieces returns the texts that put change number id behind a switch. typ is the type of the
// changed expression; "" means that the file cannot name it.
func (m *mutant) pieces(id int, typ string) []piece {
	around := func(open, end string) []piece {
		return []piece{{at: m.from, text: open, of: m}, {at: m.to, text: end, ends: true, of: m}}
	}
	operator := func(open, op, end string) []piece {
		return append(around(open, end), piece{at: m.begin, over: m.end - m.begin, text: op, of: m})
	}
	if typ != "" {
		typ = "[" + typ + "]"
	}
	is := fmt.Sprintf("mutantIs(%d)", id)
	switch m.kind {
	case "condition":
		return around("((", ") != "+is+")")
	case "equality":
		return around("((", ") != "+is+")")
	case "logic": // a || b is !(!a && !b)
		return operator("((((", ") != "+is+") "+m.old()+" ((", ") != "+is+")) != "+is+")")
	case "bound":
		return operator(fmt.Sprintf("mutantBound%s(%d, ", map[string]string{"<": "Less", "<=": "AtMost", ">": "More", ">=": "AtLeast"}[m.old()], id), ",", ")")
	case "arithmetic":
		return operator(fmt.Sprintf("mutant%s%s(%d, ", map[string]string{"+": "Sum", "-": "Difference"}[m.old()], typ, id), ",", ")")
	case "constant":
		if m.old() == "true" || m.old() == "false" {
			return around("(", " != "+is+")")
		}
		return around(fmt.Sprintf("mutantConstant%s(%d, ", typ, id), ")")
	default: // a statement
		return around("if !"+is+" { ", " }")
	}
}

// supportSource returns the source file with the functions that switches call. n is larger than
// every number of a change. If the environment variable MUTANT_HITS names a file, the tests record
// in it which changes they reach.
func supportSource(name string, n int) []byte {
	return fmt.Appendf(nil, `package %s

import (
	"cmp"
	"os"
	"strconv"
	"syscall"
)

var mutantHits, mutantOn = mutantBegin()

func mutantBegin() ([]byte, int) {
	hits := make([]byte, %d)
	if path := os.Getenv("MUTANT_HITS"); path != "" {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			panic(err)
		}
		if hits, err = syscall.Mmap(int(f.Fd()), 0, len(hits), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED); err != nil {
			panic(err)
		}
		if err := f.Close(); err != nil { // tests count the open files
			panic(err)
		}
	}
	on, _ := strconv.Atoi(os.Getenv("MUTANT"))
	return hits, on
}

func mutantIs(id int) bool {
	mutantHits[id] = 1
	return id == mutantOn
}

type mutantNumber interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64
}

func mutantBoundLess[T cmp.Ordered](id int, a, b T) bool {
	return a < b || a == b && mutantIs(id)
}

func mutantBoundAtMost[T cmp.Ordered](id int, a, b T) bool {
	return a < b || a == b && !mutantIs(id)
}

func mutantBoundMore[T cmp.Ordered](id int, a, b T) bool {
	return a > b || a == b && mutantIs(id)
}

func mutantBoundAtLeast[T cmp.Ordered](id int, a, b T) bool {
	return a > b || a == b && !mutantIs(id)
}

func mutantSum[T mutantNumber](id int, a, b T) T {
	if mutantIs(id) {
		return a - b
	}
	return a + b
}

func mutantDifference[T mutantNumber](id int, a, b T) T {
	if mutantIs(id) {
		return a + b
	}
	return a - b
}

func mutantConstant[T mutantNumber](id int, a T) T {
	if mutantIs(id) {
		return a + 1
	}
	return a
}
`, name, n)
}
