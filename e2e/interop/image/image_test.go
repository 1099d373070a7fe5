package image

import (
	"bytes"
	"testing"
)

// Every entry starts at a multiple of four, folders come before what is in them, and the trailer is
// last.
func TestCpio(t *testing.T) {
	var b bytes.Buffer
	c := newCpio(&b)
	c.file("a/b/c", 0o755, []byte("hello"))
	c.dir("a/b")
	c.symlink("d", "a")
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	const entry = "070701"
	var names []string
	for rest := b.Bytes(); len(rest) > 0; {
		if !bytes.HasPrefix(rest, []byte(entry)) {
			t.Fatalf("no entry at %q", rest)
		}
		field := func(i int) (v int) {
			for _, d := range rest[6+8*i : 14+8*i] {
				v = v<<4 | bytes.IndexByte([]byte("0123456789abcdef"), d)
			}
			return v
		}
		name := string(rest[110 : 110+field(11)-1])
		names = append(names, name)
		data := (110 + field(11) + 3) &^ 3
		if name == "a/b/c" && string(rest[data:data+field(6)]) != "hello" {
			t.Errorf("content of %s", name)
		}
		rest = rest[(data+field(6)+3)&^3:]
	}
	if got, want := names, []string{"a", "a/b", "a/b/c", "d", "TRAILER!!!"}; len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[4] != want[4] {
		t.Errorf("entries %v, want %v", got, want)
	}
}

func TestUseful(t *testing.T) {
	for name, want := range map[string]bool{
		"bin/ip": true, "usr/bin/ibv_rc_pingpong": true, "usr/share/doc/x": false, "etc/libibverbs.d/mlx5.driver": false,
		"usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so": true, "usr/lib/x86_64-linux-gnu/libibverbs/libmlx4-rdmav34.so": false,
		"lib/x86_64-linux-gnu/libc.so.6": true, "usr/lib/python3.11/test/x.py": false, "usr/lib/python3.11/json/__init__.py": true,
	} {
		if got := useful(merged(name)); got != want {
			t.Errorf("useful(%s) is %v", name, got)
		}
	}
}
