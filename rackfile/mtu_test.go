package rackfile

import (
	"strings"
	"testing"
)

func TestPathMTU(t *testing.T) {
	const hosts = "hosts:\n  - {name: cn0, role: compute}\n"
	for _, c := range []struct {
		text string
		link int
		want string // of an error
	}{
		{"", 4200, ""},
		{"pathMtu: 4096\n", 4200, ""},
		{"pathMtu: 2048\n", 2152, ""},
		{"pathMtu: 1024\n", 1280, ""},
		{"pathMtu: 2048\nmtu: 4000\n", 4000, ""},
		{"mtu: 9000\npathMtu: 4096\n", 9000, ""},
		{"mtu: 9000\n", 9000, ""},
		{"mtu: 3000\npathMtu: 4096\n", 0, "write mtu: 4200"},
		{"mtu: 4200\npathMtu: 1024\n", 0, "leave mtu out"},
		{"mtu: 4096\n", 0, "write pathMtu: 4096, or mtu: 4200"},
		{"mtu: 1024\n", 0, "write pathMtu: 1024, or mtu: 1280"},
		{"mtu: 512\n", 0, "write pathMtu: 1024"},
		{"mtu: 9k\n", 0, "like 9000"},
		{"pathMtu: 1500\n", 0, "use one of [1024 2048 4096]"},
	} {
		r, err := Parse([]byte(c.text + hosts))
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		case c.want == "" && (err != nil || r.LinkMTU != c.link):
			t.Errorf("%s: %v, %v, want links of %d", c.text, r, err, c.link)
		}
	}
	for link, want := range map[int]int{1280: 1024, 2151: 1024, 2152: 2048, 4199: 2048, 4200: 4096, 9216: 4096} {
		if got := PathMTU(link); got != want {
			t.Errorf("links of %d hold %d, want %d", link, got, want)
		}
	}
}
