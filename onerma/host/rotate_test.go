package host_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// line is an answer or a notice of a Lender.
type line struct {
	Grant  *host.Grant `json:"grant"`
	Coming bool        `json:"coming,omitempty"`
	Number int         `json:"number,omitempty"`
}

// A peer that acknowledges a notice late gets the new keys, which Rotate counts, and the second notice. Its
// late answer does not count for the next rotation.
func TestLateAnswerToARotation(t *testing.T) {
	r := up(t)
	l, err := net.Listen("tcp", net.JoinHostPort(addr(1).String(), "4792"))
	if err != nil {
		t.Fatal(err)
	}
	lender := r.process(t, 1).Lend(l, slog.New(slog.DiscardHandler))
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: addr(0).AsSlice()}}
	c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	say := func(format string, args ...any) {
		t.Helper()
		if _, err := fmt.Fprintf(c, format+"\n", args...); err != nil {
			t.Fatal(err)
		}
	}
	in := bufio.NewReader(c)
	want := func(coming bool, number int) {
		t.Helper()
		var got line
		b, err := in.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(b, &got)
		}
		if err != nil || got.Grant == nil || got.Coming != coming || got.Number != number {
			t.Fatalf("%s, %v; want coming %v, number %d", b, err, coming, number)
		}
	}
	say(`{"pid":7,"bytes":4096}`)
	want(false, 0)
	say("an answer that means nothing")
	rotated := make(chan int, 1)
	go func() {
		n := 0
		for n == 0 { // 0 while the lender has not noted the loan
			n = lender.Rotate()
		}
		rotated <- n
	}()
	want(true, 1)
	want(false, 1) // without an answer
	if n := <-rotated; n != 1 {
		t.Errorf("%d keys are replaced", n)
	}
	go func() { rotated <- lender.Rotate() }()
	want(true, 2)
	say("1")
	if err := c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if b, err := in.Peek(1); err == nil {
		t.Errorf("the late answer ends the wait: %q", b)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	say("2")
	want(false, 2)
	if n := <-rotated; n != 1 {
		t.Errorf("%d keys are replaced", n)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := lender.Close(); err != nil {
		t.Error(err)
	}
}

// A borrower that gets no notice that keys have replaced the former ones uses them nevertheless when it is
// told the next ones.
func TestSecondNoticeIsMissing(t *testing.T) {
	r := up(t)
	l, err := net.Listen("tcp", net.JoinHostPort(addr(1).String(), "4792"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	owner, client := r.process(t, 1), r.process(t, 0)
	lent, _ := region(t, owner, 4096, remote)
	conns := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		g, err := lent.Grant(addr(0), client.PID())
		if err == nil {
			_ = json.NewEncoder(c).Encode(line{Grant: &g})
		}
		conns <- c
	}()
	loan, err := host.Borrow(t.Context(), client, addr(1), 4096)
	if err != nil {
		t.Fatal(err)
	}
	c := <-conns
	defer func() { _ = c.Close() }()
	answers := bufio.NewReader(c)
	if _, err := answers.ReadBytes('\n'); err != nil { // the request
		t.Fatal(err)
	}
	in, _ := region(t, client, 4096, verbs.LocalWrite)
	read := func(what string) {
		t.Helper()
		if _, err := client.Read(t.Context(), host.Transfer{Remote: loan.Remote, Length: 4096, Local: in}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n := 1; n < 4; n++ {
		k := nic.Key{byte(n)}
		g, err := lent.GrantNext(k, addr(0), client.PID())
		if err != nil {
			t.Fatal(err)
		}
		if err := json.NewEncoder(c).Encode(line{Grant: &g, Coming: true, Number: n}); err != nil {
			t.Fatal(err)
		}
		if got, err := answers.ReadString('\n'); err != nil || got != fmt.Sprintln(n) {
			t.Fatalf("answer %q, %v", got, err)
		}
		read("before the key is replaced")
		if err := lent.Rotate(k); err != nil {
			t.Fatal(err)
		}
		read("after the key was replaced")
	}
	if err := loan.Close(); err != nil {
		t.Error(err)
	}
}
