package text_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/store/memcached/text"
)

// maxData is the limit of the decoders of these tests.
const maxData = 100

// decoded returns what a decoder makes of bytes that come in pieces of the given length, and fails if it
// keeps more than a line and an item.
func decoded(t *testing.T, in string, piece int) (out []string) {
	t.Helper()
	d := text.NewDecoder(maxData)
	for last := false; in != "" && !last; {
		room := d.Room()
		if len(room) == 0 || len(room) > 2*text.MaxLine {
			t.Fatalf("room for %d bytes", len(room))
		}
		n := copy(room, in[:min(piece, len(in))])
		d.Took(n)
		in = in[n:]
		for r, ok := d.Next(); ok; r, ok = d.Next() {
			out = append(out, show(r))
			last = r.Last
		}
	}
	return out
}

// show prints a request.
func show(r *text.Request) string {
	s := fmt.Sprintf("%d %q", r.Verb, r.Keys)
	if r.Refusal != "" {
		s = r.Refusal
	} else if r.Verb <= text.Cas {
		s += fmt.Sprintf(" %d %d %d %q", r.Flags, r.Exptime, r.Unique, r.Data)
	} else if r.Delta > 0 || r.Exptime != 0 {
		s += fmt.Sprintf(" %d %d", r.Delta, r.Exptime)
	}
	if r.NoReply {
		s += " noreply"
	}
	if r.More {
		s += " more"
	}
	if r.Last {
		s += " last"
	}
	return s
}

// Each line of a client becomes one request or one refusal, in whatever pieces it comes.
func TestDecoder(t *testing.T) {
	key := strings.Repeat("k", text.MaxKey)
	for _, c := range []struct {
		in   string
		want []string
	}{
		{"set a 1 2 3\r\nxyz\r\n", []string{`1 ["a"] 1 2 0 "xyz"`}},
		{"set a 1 -2 3 noreply\nxyz\nget a\n", []string{`1 ["a"] 1 -2 0 "xyz" noreply`, `7 ["a"]`}},
		{"add a 4294967295 0 0\r\n\r\n", []string{`2 ["a"] 4294967295 0 0 ""`}},
		{"replace a 0 0 4\r\n\r\n\r\n\r\n", []string{`3 ["a"] 0 0 0 "\r\n\r\n"`}},
		{"append a 0 0 1\r\n\x00\r\nprepend a 0 0 1\r\n\xff\r\n", []string{`4 ["a"] 0 0 0 "\x00"`, `5 ["a"] 0 0 0 "\xff"`}},
		{"cas a 0 0 1 18446744073709551615 noreply\r\nx\r\n", []string{`6 ["a"] 0 0 18446744073709551615 "x" noreply`}},
		{"get a  b " + key + "\r\ngets a\r\n", []string{fmt.Sprintf(`7 ["a" "b" %q]`, key), `8 ["a"]`}},
		{"delete a\r\ndelete a 0\r\ndelete a noreply\r\ndelete a 0 noreply\r\n", []string{`9 ["a"]`, `9 ["a"]`, `9 ["a"] noreply`, `9 ["a"] noreply`}},
		// a key may be called noreply
		{"delete noreply\r\ndelete noreply noreply\r\ndelete noreply 0\r\nget noreply\r\nincr noreply 1\r\n", []string{
			`9 ["noreply"]`, `9 ["noreply"] noreply`, `9 ["noreply"]`, `7 ["noreply"]`, `10 ["noreply"] 1 0`,
		}},
		{"incr a 18446744073709551615\r\ndecr a 1 noreply\r\n", []string{`10 ["a"] 18446744073709551615 0`, `11 ["a"] 1 0 noreply`}},
		{"flush_all\r\nflush_all 7 noreply\r\nverbosity 1\r\n", []string{`12 []`, `12 [] 0 7 noreply`, `15 [] 0 1`}},
		{"stats\r\nstats items\r\nversion\r\nquit\r\nversion\r\n", []string{`13 []`, `13 []`, `14 []`, `16 [] last`}},
		// lines without sense
		{"\r\n\n  \nGET a\r\ntouch a 0\r\nget\r\n", []string{"ERROR", "ERROR", "ERROR", "ERROR", "ERROR", "ERROR"}},
		{"incr a\r\nincr a -1\r\nincr a 1 2\r\n", []string{"ERROR", "CLIENT_ERROR invalid numeric delta argument", "ERROR"}},
		{"delete a 1\r\ndelete\r\nflush_all x\r\nflush_all 1 2\r\n", []string{
			"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]", "ERROR", "CLIENT_ERROR bad command line format", "ERROR",
		}},
		{"get " + key + "k\r\nget a\x00\r\n", []string{"CLIENT_ERROR bad command line format", "CLIENT_ERROR bad command line format"}},
		{"verbosity\r\nverbosity noreply\r\nversion noreply\r\nquit noreply\r\nverbosity 1 noreply\r\n", []string{
			"ERROR", "ERROR noreply", "ERROR", "ERROR", "15 [] 0 1 noreply",
		}},
		// refused commands whose data are skipped
		{"set " + key + "k 0 0 3\r\nget\r\nversion\r\n", []string{"CLIENT_ERROR bad command line format", `14 []`}},
		{"set a -1 0 3\r\nget\r\nset a 0 x 1\r\nx\r\nversion\r\n", []string{"CLIENT_ERROR bad command line format", "CLIENT_ERROR bad command line format", `14 []`}},
		{"set a 0 0 101\r\n" + strings.Repeat("version\r\n", 12)[:101] + "\r\nquit\n", []string{"SERVER_ERROR object too large for cache", `16 [] last`}},
		{"set a 0 0 101 noreply\r\n" + strings.Repeat("x", 101) + "\nquit\n", []string{"SERVER_ERROR object too large for cache noreply", `16 [] last`}},
		{"set a 0 0 100\r\n" + strings.Repeat("x", 100) + "\r\n", []string{fmt.Sprintf(`1 ["a"] 0 0 0 %q`, strings.Repeat("x", 100))}},
		// a field of cas is missing: the fourth one may be the number of bytes or the unique number
		{"cas a 0 0 99999999\r\nversion\r\n", []string{"ERROR", `14 []`}},
		{"cas a 0 0 3 x\r\nget\r\nset a 0 0 3 4 5\r\nget\r\n", []string{"CLIENT_ERROR bad command line format", "ERROR"}},
		// data that do not end where they should
		{"set a 0 0 3\r\nabcdef\r\nversion\r\n", []string{"CLIENT_ERROR bad data chunk", `14 []`}},
		{"set a 0 0 3\r\nabc\rdef\nversion\r\n", []string{"CLIENT_ERROR bad data chunk", `14 []`}},
		// lengths that announce nothing
		{"set a 0 0 -1\r\nset a 0 0 2147483646\r\nset a 0 0\r\nversion\n", []string{
			"CLIENT_ERROR bad command line format", "CLIENT_ERROR bad command line format", "ERROR", `14 []`,
		}},
		// connections that cannot go on
		{"\x80\x00\x00", []string{"CLIENT_ERROR this server speaks the text protocol only last"}},
		{"get a\r\n" + strings.Repeat("x", text.MaxLine), []string{`7 ["a"]`, "CLIENT_ERROR line too long last"}},
		{"get a " + strings.Repeat("x", 2*text.MaxLine), []string{`7 ["a"] more`, "CLIENT_ERROR line too long last"}},
		{"get " + strings.Repeat("x", text.MaxLine), []string{"CLIENT_ERROR line too long last"}},
		{"delete a" + strings.Repeat(" ", text.MaxLine), []string{"CLIENT_ERROR line too long last"}},
		// commands that are not whole
		{"get a", nil},
		{"set a 0 0 3\r\nxyz", nil},
		{"set a 0 0 3\r\nxyz\r", nil},
	} {
		for _, piece := range []int{1, 2, 7, 1 << 20} {
			if got := decoded(t, c.in, piece); !slices.Equal(got, c.want) {
				t.Errorf("%.60q in pieces of %d:\n%q, want\n%q", c.in, piece, got, c.want)
			}
		}
	}
}

// A line of the greatest length is taken.
func TestLongestLine(t *testing.T) {
	in := "get" + strings.Repeat(" "+strings.Repeat("k", text.MaxKey), text.MaxLine/(text.MaxKey+1)-1)
	in += strings.Repeat(" ", text.MaxLine-len(in)-1) + "\n"
	if got := decoded(t, in, 1000); len(got) != 1 || strings.Contains(got[0], "ERROR") {
		t.Errorf("%.80q", got)
	}
}

// A get with a longer line becomes several requests with its keys in order. A key that is refused
// ends them, and the rest of the line is skipped.
func TestLongGet(t *testing.T) {
	keys := func(n int) string { return strings.Repeat(" "+strings.Repeat("k", 99), n) }
	const full = text.MaxLine / 100
	refused := "CLIENT_ERROR bad command line format"
	for _, c := range []struct {
		in      string
		keys    int    // of all requests together
		refusal string // of the last one
	}{
		{"get" + keys(full-1) + "\n", full - 1, ""},
		{"get" + keys(full) + "\n", full, ""},
		{"gets" + keys(full) + " a b \r\n", full + 2, ""},
		{"get" + keys(3*full) + "\r\n", 3 * full, ""},
		{"get a" + strings.Repeat(" ", 3*text.MaxLine) + "b\n", 2, ""},
		{"get a" + strings.Repeat(" ", 3*text.MaxLine) + "\n", 1, ""},
		{"get" + keys(full) + " a\x00\n", full, refused},
		{"get a\x00" + keys(3*full) + "\n", 0, refused},
	} {
		for _, piece := range []int{1, 999, 1 << 20} {
			got := decoded(t, c.in+"version\n", piece)
			n, last := 0, len(got)-2
			for i, s := range got[:last+1] {
				n += strings.Count(s, `k"`) + strings.Count(s, `"a"`) + strings.Count(s, `"b"`)
				if strings.HasSuffix(s, " more") != (i < last) {
					t.Errorf("request %d of %d: %.60s", i, last, s)
				}
			}
			ok := c.refusal == "" && n == c.keys || c.refusal != "" && got[last] == c.refusal && n <= c.keys
			if !ok || got[last+1] != "14 []" {
				t.Errorf("%.20q of %d bytes in pieces of %d: %d keys, %.60q, %q", c.in, len(c.in), piece, n, got[last], got[last+1])
			}
		}
	}
}

// A client that sends a long line byte by byte does not make the decoder copy the line for each byte.
func TestSingleBytes(t *testing.T) {
	line := strings.Repeat("x", text.MaxLine-1)
	if n := testing.AllocsPerRun(1, func() {
		d := text.NewDecoder(maxData)
		for i := range line {
			copy(d.Room(), line[i:i+1])
			d.Took(1)
			if _, ok := d.Next(); ok {
				t.Fatal("the line has no end yet")
			}
		}
		copy(d.Room(), "\n")
		d.Took(1)
		if r, ok := d.Next(); !ok || r.Refusal != text.Unknown {
			t.Fatalf("%+v", r)
		}
	}); n > 100 {
		t.Errorf("%v allocations for a line of %d bytes", n, text.MaxLine)
	}
}

// FuzzDecoder: no bytes make a decoder panic or keep more than a line and an item, and what it makes of
// them does not depend on the pieces in which they come.
func FuzzDecoder(f *testing.F) {
	for _, seed := range []string{
		"set a 1 0 3\r\nxyz\r\nget a b\r\n", "cas a 0 0 1 7 noreply\nx\n", "incr a 1\r\ndecr a 1\r\ndelete a\r\n",
		"set a 0 0 200\r\n" + strings.Repeat("x", 200) + "\r\nversion\r\n", "set a 0 0 3\r\nabcdef\r\n", "flush_all\r\nstats\r\nquit\r\n",
		"\x80\x01", strings.Repeat("get ", 5000), "gets " + strings.Repeat("a\x80 ", 6000) + "\nversion\n",
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, piece uint8) {
		whole := decoded(t, string(in), 1<<20)
		if got := decoded(t, string(in), 1+int(piece)); !slices.Equal(got, whole) {
			t.Errorf("in pieces of %d: %q, as a whole: %q", 1+int(piece), got, whole)
		}
	})
}
