package ask

import (
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// guest answers as a guest does: it echoes the arguments of a program when the next one begins, so
// answers come out of order; "hang" ends by a signal only, and "gone" ends the guest.
func guest(c net.Conn) {
	defer c.Close()
	dec, enc := json.NewDecoder(c), json.NewEncoder(c)
	var held []Answer
	for {
		var q Question
		if dec.Decode(&q) != nil {
			return
		}
		switch {
		case len(q.Args) == 0:
			_ = enc.Encode(Answer{ID: q.ID, Code: -1, Output: "killed by " + unix.Signal(q.Signal).String()})
		case q.Args[0] == "gone":
			return
		case q.Args[0] == "hold":
			held = append(held, Answer{ID: q.ID, Output: "held"})
		case q.Args[0] != "hang":
			_ = enc.Encode(Answer{ID: q.ID, Code: len(q.Args), Output: strings.Join(append(q.Args, q.Env...), " ")})
			for _, a := range held {
				_ = enc.Encode(a)
			}
		}
	}
}

func TestClient(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go guest(theirs)
	c := NewClient(ours)
	begin := func(args ...string) *Program {
		t.Helper()
		p, err := c.Begin([]string{"X=y"}, args...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	held := begin("hold")
	if a := begin("echo", "a").Finish(time.Minute); a.Code != 2 || a.Output != "echo a X=y" {
		t.Errorf("%+v", a)
	}
	if a := held.Finish(time.Minute); a.Code != 0 || a.Output != "held" {
		t.Errorf("the answer that came later: %+v", a)
	}
	if a := begin("hang").Finish(time.Nanosecond); a.Code != -1 || !strings.Contains(a.Output, "no end within 1ns; it said: killed by") {
		t.Errorf("a program that does not end: %+v", a)
	}
	stopped := begin("hang")
	stopped.Signal(unix.SIGTERM)
	if a := stopped.Finish(time.Minute); a.Output != "killed by terminated" {
		t.Errorf("a program that was signalled: %+v", a)
	}
	if a := begin("gone").Finish(time.Minute); a.Code != -1 || a.Output != ErrGone.Error() {
		t.Errorf("a program in a guest that ends: %+v", a)
	}
	if _, err := c.Begin(nil, "late"); !errors.Is(err, ErrGone) {
		t.Errorf("a program in a guest that is gone: %v", err)
	}
}
