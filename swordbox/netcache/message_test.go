package netcache

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// datagram has a head in front of a text.
func datagram(id uint16, text string) []byte {
	return append([]byte{byte(id >> 8), byte(id), 0, 0, 0, 1, 0, 0}, text...)
}

func TestRequests(t *testing.T) {
	long := strings.Repeat("k", maxKey)
	for text, want := range map[string]string{
		"get a\r\n":                        "0 a",
		"get  a \r\n":                      "0 a",
		"get a\n":                          "0 a",
		"gets a\r\n":                       "1 a",
		"get " + long + "\r\n":             "0 " + long,
		"set a 0 0 3\r\nxyz\r\n":           "2 a",
		"set a 0 0 3 noreply\r\nxyz\r\n":   "2 a",
		"cas a 1 0 0 77\r\n\r\n":           "2 a",
		"append a 0 0 1\r\nx\r\n":          "2 a",
		"delete a\r\n":                     "2 a",
		"incr a 1\r\n":                     "2 a",
		"touch a 9\r\n":                    "2 a",
		"get " + long + "k\r\n":            "3 ",
		"get a b\r\n":                      "3 ",
		"get a\r\nset b 0 0 0\r\n\r\n":     "3 ",
		"delete a\r\nset b 0 0 0\r\n\r\n":  "3 ",
		"set a 0 0 3\r\nxyzz\r\n":          "3 ",
		"set a 0 0 3\r\nxyz\r\nget b\r\n":  "3 ",
		"set a 0 0 -1\r\nxyz\r\n":          "3 ",
		"set a 0 0 99999999\r\nxyz\r\n":    "3 ",
		"get a":                            "3 ",
		"flush_all\r\n":                    "3 ",
		"gat 0 a\r\n":                      "3 ",
		"GET a\r\n":                        "3 ",
		"mg a v\r\n":                       "3 ",
		"\r\n":                             "3 ",
		"":                                 "3 ",
		"\x80\x00\x00\x01 get a\r\n":       "3 ",
		"get \r\n":                         "3 ",
		"set a 0 0\r\n\r\n":                "3 ",
		"replace a 0 0 1\r\nx\ndelete b\n": "3 ",
	} {
		r, ok := parseRequest(datagram(7, text))
		if got := fmt.Sprintf("%d %s", r.kind, r.key); !ok || r.id != 7 || got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if r, ok := parseRequest([]byte{0, 7, 0, 0, 0, 2, 0, 0, 'g', 'e', 't', ' ', 'a', '\n'}); !ok || r.kind != Many {
		t.Error("a request of two datagrams")
	}
	if _, ok := parseRequest([]byte{0, 7, 0, 0, 0, 1, 0}); ok {
		t.Error("half a head")
	}
}

func TestAnswers(t *testing.T) {
	digest := uint64(0)
	for i, c := range []struct {
		text          string
		whole, unique bool
	}{
		{"VALUE a 0 3\r\nxyz\r\nEND\r\n", true, false},
		{"VALUE a 0 3 17\r\nxyz\r\nEND\r\n", true, true},
		{"VALUE a 0 0\r\n\r\nEND\r\n", true, false},
		{"END\r\n", false, false},
		{"STORED\r\n", false, false},
		{"SERVER_ERROR out of memory\r\n", false, false},
		{"VALUE a 0 3\r\nxyz\r\nVALUE b 0 1\r\nx\r\nEND\r\n", false, false},
		{"VALUE a 0 3\r\nxyz\r\nEND\r\nEND\r\n", false, false},
		{"VALUE a 0 4\r\nxyz\r\nEND\r\n", false, false},
		{"VALUE a 0\r\nxyz\r\nEND\r\n", false, false},
		{"VALUE a 0 3 17 9\r\nxyz\r\nEND\r\n", false, false},
		{"", false, false},
	} {
		a, ok := parseAnswer(datagram(9, c.text))
		if !ok || a.id != 9 || a.whole != c.whole || a.unique != c.unique || string(a.body) != c.text || c.whole && string(a.key) != "a" {
			t.Errorf("%q: %+v", c.text, a)
		}
		if i == 0 {
			digest = a.digest
		}
		if (a.digest == digest) != (i < 2) {
			t.Errorf("%q: digest %#x", c.text, a.digest)
		}
	}
	if a, ok := parseAnswer([]byte{0, 9, 0, 1, 0, 2, 0, 0, 'E', 'N', 'D', '\r', '\n'}); !ok || a.whole || a.body != nil {
		t.Errorf("an answer in two datagrams: %+v", a)
	}
}

// The digest depends on each byte of key, flags and data, and on where they end.
func TestDigests(t *testing.T) {
	seen := map[uint64]string{}
	for _, key := range []string{"a", "b", "ab", "abcdefgh", "abcdefgi"} {
		for _, flags := range []string{"0", "1", "10"} {
			for _, data := range []string{"", "\x00", "x", "0x", "x\x00", "abcdefgh", "abcdefgh\x00", "habcdefg"} {
				text := fmt.Sprintf("VALUE %s %s %d\r\n%s\r\nEND\r\n", key, flags, len(data), data)
				a, _ := parseAnswer(datagram(1, text))
				if was := seen[a.digest]; was != "" || !a.whole {
					t.Errorf("%q and %q", text, was)
				}
				seen[a.digest] = text
			}
		}
	}
}

// Whatever comes, what the parsers return are parts of it, and a request that was read is the only command there.
func FuzzMessages(f *testing.F) {
	for _, s := range []string{"get a\r\n", "set a 0 0 3\r\nxyz\r\n", "VALUE a 0 3\r\nxyz\r\nEND\r\n", "delete a\n", "END\r\n"} {
		f.Add(datagram(1, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := parseRequest(b); ok {
			text := b[headLen:]
			if r.id != binary.BigEndian.Uint16(b) || r.kind != Many && (len(r.key) == 0 || len(r.key) > maxKey || bytes.ContainsAny(r.key, " \n") || !bytes.Contains(text, r.key)) {
				t.Errorf("%q: %+v", b, r)
			}
			if (r.kind == Get || r.kind == Gets) && bytes.Count(text, []byte("\n")) != 1 {
				t.Errorf("%q is one get", text)
			}
		}
		if a, ok := parseAnswer(b); ok && a.whole && (!bytes.HasSuffix(b, endItems) || !bytes.Equal(a.body, b[headLen:]) || len(a.key) == 0) {
			t.Errorf("%q: %+v", b, a)
		}
	})
}
