package pcapng

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// recorded is a stream of one interface with packets at these times.
func recorded(t testing.TB, name string, at ...int64) []byte {
	var b bytes.Buffer
	w, err := NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	id, err := w.AddInterface(name, Ethernet)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range at {
		if err := w.WritePacket(id, n, fmt.Appendf(nil, "%s %d", name, n), "comment"); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.WriteStatistics(id, 1, 10, 3, ""), w.Flush()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func at(machine string) func(string) string {
	return func(name string) string { return strings.Replace(name, " ", "@"+machine+" ", 1) }
}

func listed(t testing.TB, file []byte) (list []string) {
	t.Helper()
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	for {
		var p Packet
		if err := r.Next(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%s %d %s", p.Name, p.Time, p.Data))
	}
}

// Packets of two machines come in the order of one clock, with the names of the machines, comments and
// losses.
func TestMerge(t *testing.T) {
	var out bytes.Buffer
	m, err := NewMerger(&out, []MergeSource{{Rename: at("m1")}, {Rename: at("m2"), Ahead: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range [][]byte{recorded(t, "cn0 up", 100, 300, 500), recorded(t, "cn1 up", 1200, 1300, 1400)} {
		if err := Blocks(bytes.NewReader(s), func(b []byte) error { return m.Take(i, b, 0) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Write(0); err != nil {
		t.Fatal(err)
	}
	want := []string{"cn0@m1 up 100 cn0 up 100", "cn1@m2 up 200 cn1 up 1200", "cn0@m1 up 300 cn0 up 300", "cn1@m2 up 300 cn1 up 1300", "cn1@m2 up 400 cn1 up 1400"}
	if got := listed(t, out.Bytes()); !slices.Equal(got, want) { // the other machine may have a packet before 500
		t.Errorf("%q\nwant %q", got, want)
	}
	if err := m.Write(Hold); err != nil {
		t.Fatal(err)
	}
	want = append(want, "cn0@m1 up 500 cn0 up 500")
	if got := listed(t, out.Bytes()); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	c, err := Copy(io.Discard, bytes.NewReader(out.Bytes()), 0)
	if err != nil || c.Packets != 6 || c.Commented != 6 || c.Lost != 6 {
		t.Errorf("%+v, %v", c, err)
	}
}

// The last packets are written when all streams have ended, and a stream that is silent keeps none.
func TestMergeEnds(t *testing.T) {
	var out bytes.Buffer
	m, err := NewMerger(&out, []MergeSource{{Rename: at("m1")}, {Rename: at("m2")}})
	if err != nil {
		t.Fatal(err)
	}
	take := func(i int, now time.Duration, times ...int64) {
		t.Helper()
		n := 0
		if err := Blocks(bytes.NewReader(recorded(t, "x up", times...)), func(b []byte) error {
			if n++; n == 1 || n == 2 && len(m.sources[i].ids) > 0 || n == 3+len(times) {
				return nil // described before, and no statistics
			}
			return m.Take(i, b, now)
		}); err != nil {
			t.Fatal(err)
		}
	}
	count := func(now time.Duration) int {
		t.Helper()
		if err := m.Write(now); err != nil {
			t.Fatal(err)
		}
		return len(listed(t, out.Bytes()))
	}
	take(0, 0, 10, 20)
	if n := count(Hold - 1); n != 0 {
		t.Errorf("%d packets, before another stream was heard", n)
	}
	take(1, Hold-1, 15)
	if n := count(Hold - 1); n != 2 {
		t.Errorf("%d packets up to the time of the other stream", n)
	}
	if n := count(Hold); n != 3 {
		t.Errorf("%d packets after Hold", n)
	}
	take(0, Hold, 30)
	m.End(1)
	if n := count(Hold); n != 4 {
		t.Errorf("%d packets after the other stream has ended", n)
	}
	m.SetAhead(0, 5)
	take(0, Hold, 46)
	m.End(0)
	if got := count(Hold); got != 5 || !strings.Contains(listed(t, out.Bytes())[4], " 41 ") {
		t.Errorf("%q", listed(t, out.Bytes()))
	}
}

// No block makes a Merger panic, and what it writes can be read.
func FuzzMerge(f *testing.F) {
	f.Add(recorded(f, "cn0 up", 1, 2), int64(5))
	f.Add([]byte{6, 0, 0, 0, 12, 0, 0, 0, 12, 0, 0, 0}, int64(-1))
	f.Fuzz(func(t *testing.T, stream []byte, ahead int64) {
		var out bytes.Buffer
		m, err := NewMerger(&out, []MergeSource{{Rename: at("m1"), Ahead: time.Duration(ahead)}})
		if err != nil {
			t.Fatal(err)
		}
		_ = Blocks(bytes.NewReader(stream), func(b []byte) error { return m.Take(0, b, 0) })
		m.End(0)
		if err := m.Write(0); err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(&out)
		var p Packet
		for err == nil {
			err = r.Next(&p)
		}
	})
}
