package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
)

const drawn = `name: drawn
switch: {program: swordbox, rules: [{id: locks, server: ms0, action: atomics, service: none}]}
hosts: [{name: cn0, role: compute}, {name: ms0, role: memory, memory: 1MiB}]
faults: [{link: cn0, kind: loss, probability: 5%, dir: up}]
`

func TestGraph(t *testing.T) {
	r, err := rackfile.ParseFile("drawn.yaml", []byte(drawn))
	if err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string]string{
		"text": `rack drawn: MTU 4200, 10.77.0.0/24, fd00:77::/64
switch, program swordbox
│   rule id=locks server=ms0 action=atomics service=none
├── cn0             compute  10.77.0.2  fd00:77::2
│   fault loss 5% --dir up
└── ms0             memory  10.77.0.3  1MiB  fd00:77::3
`,
		"mermaid": `graph TD
  switch{{"switch<br>swordbox<br>id=locks server=ms0 action=atomics service=none"}}
  h0["cn0<br>compute<br>10.77.0.2"]
  switch ---|"loss 5% --dir up"| h0
  h1["ms0<br>memory<br>10.77.0.3<br>1MiB"]
  switch --- h1
`,
		"dot": `graph "drawn" {
  node [shape=box]
  switch [shape=hexagon label="switch\nswordbox\nid=locks server=ms0 action=atomics service=none"]
  h0 [label="cn0\ncompute\n10.77.0.2"]
  switch -- h0 [label="loss 5% --dir up"]
  h1 [label="ms0\nmemory\n10.77.0.3\n1MiB"]
  switch -- h1
}
`,
	} {
		var b bytes.Buffer
		if drawings[format](&b, r); b.String() != want {
			t.Errorf("%s:\n%s\nwant\n%s", format, &b, want)
		}
	}
}

// A picture of a rack names the switch's rule, each host and each fault, and is a file in each format.
func TestGraphPicture(t *testing.T) {
	r, err := rackfile.ParseFile("drawn.yaml", []byte(drawn))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	drawSVG(&b, r)
	for _, want := range []string{">rack drawn: MTU 4200", ">program swordbox<", ">id=locks server=ms0 action=atomics service=none<", ">cn0<", ">ms0<", ">loss 5% --dir up<", "1MiB"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "drawn.yaml")
	if err := os.WriteFile(file, []byte(drawn), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, begins := range map[string]string{"x.svg": "<svg", "x.pdf": "%PDF", "x.png": "\x89PNG"} {
		if _, err := run(t, "graph", file, "-w", filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.HasPrefix(string(b), begins) {
			t.Errorf("%s begins with %.8q, %v", name, b, err)
		}
	}
	if _, err := run(t, "graph", file, "-w", filepath.Join(dir, "x.gif")); !isUse(err) || !strings.Contains(err.Error(), "x.pdf") {
		t.Errorf("%v", err)
	}
}

// A good file has one line, and a wrong one its mistakes with their places.
func TestValidate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := write("good.yaml", drawn), write("bad.yaml", "hosts: [{name: cn0, rol: compute}]\nmtu: 12\n")
	var out, errs bytes.Buffer
	cmd := validateCmd()
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs([]string{good, bad, filepath.Join(dir, "none.yaml")})
	err := cmd.Execute()
	if err == nil || !strings.Contains(err.Error(), "2 of 3") {
		t.Errorf("error %v", err)
	}
	if want := good + ": rack drawn: 2 hosts (1 compute, 1 memory, 0 metadata), switch program swordbox with 1 rules, 1 faults\n"; out.String() != want {
		t.Errorf("prints %q, want %q", &out, want)
	}
	for _, want := range []string{bad + ":1:", bad + ":2:", "none.yaml"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("the mistakes %q do not name %s", &errs, want)
		}
	}
}
