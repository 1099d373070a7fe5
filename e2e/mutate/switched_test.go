package main

import (
	"os"
	"testing"
	"time"
)

// A package whose tests notice some of its changes.
var switchable = map[string]string{
	"go.mod": "module example.com/x\n\ngo 1.26\n",
	"x.go": `package x

import "time"

type size uint16

const unit = 4

func f(a, b int, on bool) int {
	if a < b && on || a == 7 {
		a++
	}
	for i := 0; i < 3; i++ {
		a = a + unit - 1
	}
	var room [5]byte
	return a + len(room)
}

func g(s size, text string) (size, time.Duration, string) {
	ok := true
	if !ok {
		panic("broken")
	}
	return s + 2<<1, 3 * time.Second, text + "!"
}

func never() bool { return unit > 5 }
`,
	"x_test.go": `package x

import (
	"os"
	"strings"
	"testing"
)

// What counts its open files sees none of the tool.
func TestFiles(t *testing.T) {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.HasSuffix(name, "hits") {
			t.Error(name, "is open")
		}
	}
	f(1, 2, true)
}

func TestF(t *testing.T) {
	for _, c := range [][4]int{{1, 2, 1, 16}, {1, 2, 0, 15}, {7, 2, 0, 22}, {2, 2, 1, 16}} {
		if got := f(c[0], c[1], c[2] == 1); got != c[3] {
			t.Errorf("%v: %d", c, got)
		}
	}
}

func TestG(t *testing.T) {
	if s, d, text := g(1, "a"); s != 5 || d != 3e9 || text != "a!" {
		t.Error(s, d, text)
	}
}
`,
}

// A change that is switched on has the same outcome as one that is compiled alone, whether it is
// noticed, stays unnoticed or is not reached.
func TestSwitchedChanges(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range switchable {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all, err := find(".")
	if err != nil {
		t.Fatal(err)
	}
	c, err := newChecker(".")
	if err != nil {
		t.Fatal(err)
	}
	b, err := runner{dir: t.TempDir(), tests: []string{"."}, limit: time.Minute, short: true}.buildSwitched(c, ".", all)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.tests) != 3 {
		t.Errorf("%d tests count, want all 3", len(b.tests))
	}
	unnoticed := map[string]bool{ // whether a test reaches them
		"x.go:28: never: bound: > → >=":   false,
		"x.go:28: never: constant: 5 → 6": false,
	}
	compiled := map[string]outcome{ // they cannot be switched
		"x.go:16: f: constant: 5 → 6":                        killed,
		"x.go:23: g: statement: panic(\"broken\") → nothing": survived,
		"x.go:25: g: arithmetic: + → -":                      invalid,
	}
	for i := range all {
		m := &all[i]
		if want, ok := compiled[m.String()]; ok && b.s.ids[m] == 0 {
			if got := b.r.test(m); got != want {
				t.Errorf("%v: %v, want %v", m, got, want)
			}
			delete(compiled, m.String())
			continue
		}
		if b.s.ids[m] == 0 {
			t.Errorf("%v cannot be switched", m)
			continue
		}
		want := killed
		if reached, ok := unnoticed[m.String()]; ok {
			if want = survived; b.reached(m) != reached {
				t.Errorf("%v: reached %v", m, !reached)
			}
			delete(unnoticed, m.String())
		}
		if got := b.test(m); got != want && (want != killed || got != hung) {
			t.Errorf("%v: %v, want %v", m, got, want)
		}
	}
	if len(unnoticed) != 0 || len(compiled) != 0 {
		t.Errorf("not found: %v, %v", unnoticed, compiled)
	}
}
