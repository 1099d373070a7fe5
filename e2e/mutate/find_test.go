package main

import (
	"go/parser"
	"go/token"
	"testing"
)

const sample = `package x

func f(a, b int) int {
	if a < b && a != 3 {
		a++
		g()
	}
	for a > 0 {
		a = a - 1
		continue
	}
	c := true
	_ = c
	return a
}
`

// Every kind of change is found, with its place, and leaves a file that parses.
func TestFind(t *testing.T) {
	all, err := inFile("x.go", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	got, keys := map[string]bool{}, map[string]bool{}
	for i := range all {
		m := &all[i]
		got[m.String()] = true
		keys[m.key()] = true
		if _, err := parser.ParseFile(token.NewFileSet(), "x.go", m.source(), 0); err != nil {
			t.Errorf("%v: %v", m, err)
		}
	}
	for _, want := range []string{
		"x.go:4: f: condition: a < b && a != 3 → !(a < b && a != 3)",
		"x.go:4: f: bound: < → <=",
		"x.go:4: f: logic: && → ||",
		"x.go:4: f: equality: != → ==",
		"x.go:4: f: constant: 3 → 4",
		"x.go:5: f: statement: a++ → nothing",
		"x.go:6: f: statement: g() → nothing",
		"x.go:8: f: condition: a > 0 → !(a > 0)",
		"x.go:8: f: bound: > → >=",
		"x.go:8: f: constant: 0 → 1",
		"x.go:9: f: statement: a = a - 1 → nothing",
		"x.go:9: f: arithmetic: - → +",
		"x.go:9: f: constant: 1 → 2",
		"x.go:10: f: statement: continue → nothing",
		"x.go:12: f: constant: true → false",
		"x.go:13: f: statement: _ = c → nothing",
	} {
		if !got[want] {
			t.Errorf("not found: %s", want)
		}
		delete(got, want)
	}
	for m := range got {
		t.Errorf("found: %s", m)
	}
	for _, want := range []string{"x.go f: bound a < b", "x.go f: equality a != 3", "x.go f: statement g()", "x.go f: constant 3 in a != 3"} {
		if !keys[want] {
			t.Errorf("no key %q", want)
		}
	}
	if none, err := inFile("x.go", []byte("//go:build never\n\n"+sample)); err != nil || len(none) != 0 {
		t.Errorf("in a file that is not built: %d, %v", len(none), err)
	}
}

// Calls of the coverage instrument are left alone: without its build tag they do nothing.
func TestFindLeavesTheInstrument(t *testing.T) {
	all, err := inFile("x.go", []byte("package x\n\nfunc f() {\n\tq.sawAnswer(s)\n\tsaw(s)\n\tq.send(s)\n}\n"))
	if err != nil || len(all) != 1 || all[0].what != "q.send(s)" {
		t.Errorf("%v, %v", all, err)
	}
}

// A zero that is returned beside an error or beside false means nothing; another one does.
func TestFindLeavesZerosBesideErrors(t *testing.T) {
	for result, want := range map[string]int{
		`0, opError("x", 5)`: 1, `0, fmt.Errorf("x")`: 0, `0, errors.New("x")`: 0, "0, errShort": 0, `0, postErr("x")`: 0, "0, verbs.ErrLimit": 0, "0, false": 1,
		"0, err": 1, "0, nil": 1, "0, true": 2, "1, errShort": 1, "x.errors(0)": 1, "0, x.close()": 1,
	} {
		all, err := inFile("x.go", []byte("package x\n\nfunc f() {\n\treturn "+result+"\n}\n"))
		if err != nil || len(all) != want {
			t.Errorf("return %s: %v, %v; want %d", result, all, err, want)
		}
	}
	all, err := inFile("x.go", []byte("package x\n\nfunc f() {\n\tif err != nil {\n\t\treturn 0, err\n\t}\n}\n"))
	if err != nil || len(all) != 2 {
		t.Errorf("return 0, err of an error: %v, %v", all, err)
	}
}
