package memcached_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/memcached"
)

// serve starts a server on the loopback interface, which ends with the test.
func serve(t testing.TB, table memcached.Table) *memcached.Server {
	t.Helper()
	s, err := memcached.Listen("127.0.0.1:0", table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the test may have closed it
	return s
}

func dial(t testing.TB, s *memcached.Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	return c
}

// said returns all that a server answers to what a client sends, which ends with quit.
func said(t testing.TB, s *memcached.Server, in string) string {
	t.Helper()
	c := dial(t, s)
	go func() { _, _ = io.WriteString(c, in) }() // the server may end the connection first
	out, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(out), "\r\n", "\n")
}

// Every command does what memcached's protocol says.
func TestCommands(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"set and get":     {"set a 7 0 3\r\nxyz\r\nget a b a\r\n", "STORED\nVALUE a 7 3\nxyz\nVALUE a 7 3\nxyz\nEND\n"},
		"empty data":      {"set a 0 0 0\r\n\r\nget a\r\n", "STORED\nVALUE a 0 0\n\nEND\n"},
		"miss":            {"get a\r\ndelete a\r\nincr a 1\r\n", "END\nNOT_FOUND\nNOT_FOUND\n"},
		"delete":          {"set a 0 0 1\r\nx\r\ndelete a\r\nget a\r\n", "STORED\nDELETED\nEND\n"},
		"add":             {"add a 0 0 1\r\nx\r\nadd a 0 0 1\r\ny\r\nget a\r\n", "STORED\nNOT_STORED\nVALUE a 0 1\nx\nEND\n"},
		"replace":         {"replace a 0 0 1\r\nx\r\nset a 1 0 1\r\ny\r\nreplace a 2 0 1\r\nz\r\nget a\r\n", "NOT_STORED\nSTORED\nSTORED\nVALUE a 2 1\nz\nEND\n"},
		"append":          {"append a 0 0 1\r\nx\r\nset a 5 0 1\r\ny\r\nappend a 9 0 1\r\nz\r\nprepend a 9 0 1\r\nx\r\nget a\r\n", "NOT_STORED\nSTORED\nSTORED\nSTORED\nVALUE a 5 3\nxyz\nEND\n"},
		"cas":             {"cas a 0 0 1 1\r\nx\r\nset a 0 0 1\r\nx\r\ngets a\r\ncas a 3 0 1 1\r\ny\r\ncas a 0 0 1 1\r\nz\r\ngets a\r\n", "NOT_FOUND\nSTORED\nVALUE a 0 1 1\nx\nEND\nSTORED\nEXISTS\nVALUE a 3 1 2\ny\nEND\n"},
		"incr and decr":   {"set a 4 0 1\r\n9\r\nincr a 1\r\ndecr a 3\r\ndecr a 8\r\nget a\r\n", "STORED\n10\n7\n0\nVALUE a 4 1\n0\nEND\n"},
		"incr wraps":      {"set a 0 0 20\r\n18446744073709551615\r\nincr a 2\r\n", "STORED\n1\n"},
		"not a number":    {"set a 0 0 1\r\nx\r\nincr a 1\r\nset b 0 0 21\r\n111111111111111111111\r\ndecr b 1\r\n", "STORED\n" + "CLIENT_ERROR cannot increment or decrement non-numeric value\nSTORED\nCLIENT_ERROR cannot increment or decrement non-numeric value\n"},
		"leading zeros":   {"set a 0 0 20\r\n00000000000000000055\r\nincr a 1\r\nset b 0 0 150\r\n" + strings.Repeat("0", 148) + "55\r\nincr b 1\r\nget b\r\n", "STORED\n56\nSTORED\n56\nVALUE b 0 2\n56\nEND\n"},
		"noreply":         {"set a 0 0 1 noreply\r\nx\r\nadd a 0 0 1 noreply\r\ny\r\nincr a 1 noreply\r\nset b 0 0 999 noreply\r\n" + strings.Repeat("z", 999) + "\r\nget a b\r\ndelete a noreply\r\nget a\r\n", "VALUE a 0 1\nx\nEND\nEND\n"},
		"flush_all":       {"set a 0 0 1\r\nx\r\nflush_all\r\nget a\r\nset a 0 0 1 noreply\r\nx\r\nflush_all 0 noreply\r\nget a\r\nflush_all 5\r\n", "STORED\nOK\nEND\nEND\nSERVER_ERROR flush_all takes no delay here\n"},
		"exptime":         {"set a 0 0 1\r\nx\r\nset a 0 60 1\r\ny\r\nadd b 0 9999999999 1\r\nz\r\nadd a 0 60 1\r\nz\r\nappend a 0 60 1\r\nz\r\nget a b\r\n", "STORED\nSERVER_ERROR items do not expire here: use an exptime of 0\nSERVER_ERROR items do not expire here: use an exptime of 0\nNOT_STORED\nSTORED\nVALUE a 0 2\nxz\nEND\n"},
		"expired at once": {"add a 0 2678400 0\r\n\r\nget a\r\nset a 0 0 1\r\nx\r\nadd a 0 2678400 0\r\n\r\nget a\r\nset a 0 -1 1\r\nx\r\nget a\r\n", "STORED\nEND\nSTORED\nNOT_STORED\nVALUE a 0 1\nx\nEND\nSTORED\nEND\n"},
		"too large":       {"set a 0 0 1\r\nx\r\nset a 0 0 201\r\n" + strings.Repeat("y", 201) + "\r\nset a 0 0 194\r\n" + strings.Repeat("y", 194) + "\r\nget a\r\nset a 0 0 193\r\n" + strings.Repeat("y", 193) + "\r\nappend a 0 0 1\r\ny\r\n", "STORED\nSERVER_ERROR object too large for cache\nSERVER_ERROR object too large for cache\nVALUE a 0 1\nx\nEND\nSTORED\nSERVER_ERROR object too large for cache\n"},
		"others":          {"version\r\nverbosity 1\r\nmg a v\r\nstats items\r\n", "VERSION 1.4.0\nOK\nERROR\nERROR\n"},
		"binary":          {"version\r\n\x80\x00\x00\x00", "VERSION 1.4.0\nCLIENT_ERROR this server speaks the text protocol only\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := said(t, serve(t, newTable()), c.in+"quit\r\n"); got != c.want {
				t.Errorf("%q is answered by\n%s\nwant\n%s", c.in, got, c.want)
			}
		})
	}
}

// A full table refuses new keys, and goes on with those that it has.
func TestFull(t *testing.T) {
	s := serve(t, newTable())
	var in, want strings.Builder
	for i := range tableKeys {
		fmt.Fprintf(&in, "set k%d 0 0 1\r\nx\r\n", i)
		want.WriteString("STORED\n")
	}
	in.WriteString("set more 0 0 1\r\nx\r\nset k0 0 0 1\r\ny\r\nget more k0\r\nstats\r\nquit\r\n")
	want.WriteString("SERVER_ERROR out of memory storing object\nSTORED\nVALUE k0 0 1\ny\nEND\n")
	got := said(t, s, in.String())
	stats, ok := strings.CutPrefix(got, want.String())
	if !ok {
		t.Errorf("answers:\n%s", got)
	}
	for _, line := range []string{
		"STAT curr_items 20\n", "STAT max_items 20\n", "STAT cmd_set 22\n", "STAT cmd_get 2\n", "STAT get_hits 1\n", "STAT get_misses 1\n",
		"STAT curr_connections 1\n", "STAT total_connections 1\n", "STAT item_size_max 200\n", "STAT version 1.4.0\n", "END\n",
	} {
		if !strings.Contains(stats, line) {
			t.Errorf("stats lack %q:\n%s", line, stats)
		}
	}
}

// A value that belongs to a number, or to another key with the same hash, is not found and not changed.
func TestForeignValues(t *testing.T) {
	for _, foreign := range []string{"", "hello", "\xe1\x01\x00\x00\x00\x00b!", "\xe1\xff\x00\x00\x00\x00a", "\xe1"} {
		m := newTable()
		m.values[memcached.Number([]byte("a"))] = value{foreign, 1}
		got := said(t, serve(t, m), "get a\r\ndelete a\r\nset a 0 0 1\r\nx\r\nadd a 0 0 1\r\nx\r\nreplace a 0 0 1\r\nx\r\ncas a 0 0 1 1\r\nx\r\nincr a 1\r\nflush_all\r\nquit\r\n")
		const full = "SERVER_ERROR out of memory storing object\n"
		if want := "END\nNOT_FOUND\n" + full + full + "NOT_STORED\nNOT_FOUND\nNOT_FOUND\nOK\n"; got != want {
			t.Errorf("%q is answered by\n%s", foreign, got)
		}
		if v := m.values[memcached.Number([]byte("a"))]; v.bytes != foreign {
			t.Errorf("%q became %q", foreign, v.bytes)
		}
	}
}

// An item with another key that has its hash is not taken for it by a client of the table, either.
func TestGet(t *testing.T) {
	m := kv.NewMap(300)
	for name, c := range map[string]struct{ item, data string }{
		"none":    {},
		"item":    {string(memcached.AppendItem(nil, []byte("a"), 9, []byte("hello"))), "hello"},
		"other":   {string(memcached.AppendItem(nil, []byte("b"), 9, []byte("hello"))), ""},
		"foreign": {"hello", ""},
	} {
		_ = m.Delete(memcached.Number([]byte("a")), clock.Never) // there may be none
		if c.item != "" {
			if err := m.Insert(memcached.Number([]byte("a")), []byte(c.item), clock.Never); err != nil {
				t.Fatal(err)
			}
		}
		flags, data, err := memcached.Get(m, []byte("a"), nil, clock.Never)
		if string(data) != c.data || c.data != "" && (flags != 9 || err != nil) || c.data == "" && !errors.Is(err, kv.ErrNotFound) {
			t.Errorf("%s: %d %q %v", name, flags, data, err)
		}
	}
}

// A get may have any number of keys, as in memcached. Its answer ends once.
func TestLongGet(t *testing.T) {
	const keys = 3000
	table := newTable()
	s := serve(t, table)
	var in strings.Builder
	in.WriteString("set first 0 0 1\r\nx\r\nset last 0 0 1\r\ny\r\ngets first")
	for i := range keys {
		fmt.Fprintf(&in, " key-of-some-length-%d", i)
	}
	in.WriteString(" last\r\nversion\r\nquit\r\n")
	if got := said(t, s, in.String()); got != "STORED\nSTORED\nVALUE first 0 1 1\nx\nVALUE last 0 1 2\ny\nEND\nVERSION 1.4.0\n" {
		t.Errorf("%.300s", got)
	}
	table.broken = errors.New("no NIC")
	_, get, _ := strings.Cut(in.String(), "y\r\n")
	if got := said(t, s, get); got != "SERVER_ERROR no NIC\nVERSION 1.4.0\n" {
		t.Errorf("of a broken table: %.300s", got)
	}
}

// An error of the table is answered in one line, and the connection goes on.
func TestBrokenTable(t *testing.T) {
	m := newTable()
	m.broken = errors.New("no\r\nNIC")
	const gone = "SERVER_ERROR no  NIC\n"
	got := said(t, serve(t, m), "get a\r\nset a 0 0 1\r\nx\r\ndelete a\r\nincr a 1\r\nflush_all\r\nversion\r\nquit\r\n")
	if got != strings.Repeat(gone, 5)+"VERSION 1.4.0\n" {
		t.Error(got)
	}
}

// Clients that add to one number and append to one item lose nothing; cas lets one of them win.
func TestConcurrentClients(t *testing.T) {
	const clients, rounds = 8, 20
	s := serve(t, newTable())
	said(t, s, "set n 0 0 1\r\n0\r\nset s 0 0 0\r\n\r\nset c 0 0 1\r\nx\r\nquit\r\n")
	_, unique, _ := strings.Cut(strings.Split(said(t, s, "gets c\r\nquit\r\n"), "\n")[0], "VALUE c 0 1 ")
	var wg sync.WaitGroup
	won := make(chan string, clients)
	for range clients {
		wg.Go(func() {
			out := said(t, s, strings.Repeat("incr n 3\r\nappend s 0 0 1\r\nx\r\n", rounds)+"cas c 0 0 1 "+unique+"\r\ny\r\nquit\r\n")
			lines := strings.Split(strings.TrimSpace(out), "\n")
			won <- lines[len(lines)-1]
		})
	}
	wg.Wait()
	close(won)
	var stored int
	for answer := range won {
		if answer == "STORED" {
			stored++
		}
	}
	want := fmt.Sprintf("VALUE n 0 3\n%d\nVALUE s 0 %d\n%s\nEND\n", 3*clients*rounds, clients*rounds, strings.Repeat("x", clients*rounds))
	if got := said(t, s, "get n s\r\nquit\r\n"); got != want || stored != 1 {
		t.Errorf("%s, %d clients have won", got, stored)
	}
}

// Close ends idle connections, and those in the midst of a command, and all goroutines. It may be called
// again.
func TestClose(t *testing.T) {
	s := serve(t, newTable())
	idle, midst := dial(t, s), dial(t, s)
	for _, in := range []string{"version\r\n", "set a 0 0 100\r\nx"} {
		if _, err := io.WriteString(midst, in); err != nil {
			t.Fatal(err)
		}
	}
	if line, err := bufio.NewReader(midst).ReadString('\n'); err != nil { // the server has accepted both
		t.Fatal(line, err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []net.Conn{idle, midst} {
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		var timeout net.Error
		if _, err := io.Copy(io.Discard, c); errors.As(err, &timeout) && timeout.Timeout() {
			t.Error("a connection goes on")
		}
	}
	if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("the server still listens")
	}
}

// queue is a listener whose connections are pipes.
type queue chan net.Conn

func (q queue) Accept() (net.Conn, error) {
	if c, ok := <-q; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (q queue) Close() error { close(q); return nil }
func (queue) Addr() net.Addr { return &net.TCPAddr{} }

// A connection too many is told so and closed; when another one has ended, there is room again.
func TestTooManyConnections(t *testing.T) {
	q := make(queue)
	s := memcached.Serve(q, newTable())
	open := func() net.Conn {
		mine, its := net.Pipe()
		q <- its
		return mine
	}
	first := open()
	for range memcached.MaxConns - 1 {
		open()
	}
	if out, err := io.ReadAll(open()); string(out) != "ERROR Too many open connections\r\n" {
		t.Errorf("%q, %v", out, err)
	}
	_ = first.Close() // a pipe
	for {
		c := open()
		go func() { _, _ = io.WriteString(c, "version\r\n") }() // a refused connection is not read
		if line, err := bufio.NewReader(c).ReadString('\n'); line == "VERSION 1.4.0\r\n" {
			break
		} else if err != nil || !strings.HasPrefix(line, "ERROR") {
			t.Fatalf("%q, %v", line, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
