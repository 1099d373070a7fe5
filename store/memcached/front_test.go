package memcached_test

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/memcached"
)

// reader reads a table past its server, as a client over RDMA does.
type reader struct {
	kv.Store
	t *table
}

func (r reader) Get(key uint64, dst []byte, _ clock.Time) ([]byte, error) {
	v, _, err := r.t.Read(key, dst)
	return v, err
}

func (reader) Now() clock.Time { return 0 }
func (reader) Close() error    { return nil }

// front starts a front before a server at an address, which ends with the test.
func front(t *testing.T, upstream string, table *table) *memcached.Server {
	t.Helper()
	s, err := memcached.ListenFront("127.0.0.1:0", memcached.Front{
		Upstream: upstream, Open: func() (memcached.Reader, error) { return reader{t: table}, nil }, MaxValue: tableValue, Patience: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the test may have closed it
	return s
}

// Through a front, each command has the answer of the server itself.
func TestFrontAnswersAsTheServer(t *testing.T) {
	long := "get" + strings.Repeat(" "+strings.Repeat("k", 99), 400) + " a\r\n"
	for _, in := range []string{
		"set a 7 0 3\r\nxyz\r\nget a b a\r\ngets a b\r\ncas a 3 0 1 1\r\ny\r\nget a\r\ncas a 0 0 1 1\r\nz\r\n",
		"add a 0 0 1\r\n9\r\nreplace a 0 0 2\r\n10\r\nincr a 5\r\ndecr a 1\r\nappend a 0 0 1\r\n1\r\nprepend a 0 0 1\r\n2\r\nget a\r\ndelete a\r\nget a\r\n",
		"set a 0 0 1 noreply\r\nx\r\nget a\r\nincr a 1\r\nset a 0 0 8 noreply\r\nEND\r\nend\r\ngets a\r\nget a\r\nflush_all\r\nget a\r\n",
		"set a 0 60 1\r\nx\r\nset a 0 0 201\r\n" + strings.Repeat("y", 201) + "\r\nflush_all 5\r\nversion\r\nverbosity 1\r\nmg a v\r\nset a\r\nget a\x00\r\n",
		"set \x11\x1f\x7f 0 0 1\r\nx\r\nget \x11\x1f\x7f\r\ngets \x11\x1f\x7f\r\n",
		"set a 0 0 1\r\nx\r\n" + long + strings.Replace(long, "get", "gets", 1) + "version\r\n",
	} {
		want := said(t, serve(t, newTable()), in+"quit\r\n")
		table := newTable()
		if got := said(t, front(t, serve(t, table).Addr().String(), table), in+"quit\r\n"); got != want {
			t.Errorf("%.80q is answered by\n%.300s\nwant\n%.300s", in, got, want)
		}
	}
}

// A get does not overtake an earlier command of its connection that has no answer.
func TestFrontWaitsForCommandsWithoutAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	table, asked := newTable(), make(chan string, 2)
	server := dial(t, serve(t, table))
	go func() { // passes on what comes, but the set only when the next command has come
		c, err := l.Accept()
		if err != nil {
			return
		}
		in, answers := bufio.NewReader(c), bufio.NewReader(server)
		set, _ := in.ReadString('\n')
		data, _ := in.ReadString('\n')
		next, _ := in.ReadString('\n')
		asked <- next
		_, _ = server.Write([]byte(set + data + next))
		answer, _ := answers.ReadString('\n')
		_, _ = c.Write([]byte(answer))
	}()
	s := front(t, l.Addr().String(), table)
	if got := said(t, s, "set a 0 0 1 noreply\r\nx\r\nget a\r\nquit\r\n"); got != "VALUE a 0 1\nx\nEND\n" {
		t.Errorf("%q", got)
	}
	if next := <-asked; next != "version\r\n" {
		t.Errorf("the front has asked %q", next)
	}
}

// A client whose server is gone is told so.
func TestFrontWithoutServer(t *testing.T) {
	s := serve(t, newTable())
	addr := s.Addr().String()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := said(t, front(t, addr, newTable()), ""); !strings.HasPrefix(got, "SERVER_ERROR") {
		t.Errorf("%q", got)
	}
}

// failing is a reader whose first read is not answered in time, and whose others find nothing.
type failing struct {
	reader
	reads *int
}

func (f failing) Get(_ uint64, dst []byte, _ clock.Time) ([]byte, error) {
	if *f.reads++; *f.reads == 1 {
		return dst[:0], kv.ErrTimeout
	}
	return dst[:0], kv.ErrNotFound
}

// A get whose first part fails and whose last part is refused has one answer, and so has the next command.
func TestFrontAnswersOnce(t *testing.T) {
	s, err := memcached.ListenFront("127.0.0.1:0", memcached.Front{
		Upstream: serve(t, newTable()).Addr().String(), Open: func() (memcached.Reader, error) { return failing{reads: new(int)}, nil }, MaxValue: tableValue, Patience: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // nothing of it is used any more
	in := "get" + strings.Repeat(" "+strings.Repeat("k", 99), 200) + " " + strings.Repeat("z", 251) + "\r\nget a\r\nincr a 1\r\nquit\r\n"
	if got := said(t, s, in); !strings.HasPrefix(got, "SERVER_ERROR") || !strings.HasSuffix(got, "\nEND\nNOT_FOUND\n") || strings.Count(got, "\n") != 3 {
		t.Errorf("%q", got)
	}
}

// A front that waits for its server ends at once.
func TestFrontClosesAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a server that never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // nothing is read from it
	s := front(t, l.Addr().String(), newTable())
	c := dial(t, s)
	up, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() }) // the front has closed it
	if _, err := c.Write([]byte("version\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := up.Read(make([]byte, 16)); err != nil { // now it waits
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.Close(); err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
