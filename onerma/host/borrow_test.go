package host

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// cutConn is a connection whose context ends while the answer arrives: Read returns it after the deadline was
// set.
type cutConn struct {
	net.Conn
	answer string
	end    context.CancelFunc
	set    chan time.Time
	last   time.Time
}

func (c *cutConn) Write(b []byte) (int, error) { return len(b), nil }
func (c *cutConn) Close() error                { return nil }

func (c *cutConn) SetDeadline(t time.Time) error {
	c.set <- t
	return nil
}

func (c *cutConn) Read(b []byte) (int, error) {
	if c.answer == "" {
		return 0, io.EOF
	}
	c.end()
	c.last = <-c.set
	n := copy(b, c.answer)
	c.answer = ""
	return n, nil
}

// A context that ends while the answer arrives leaves no deadline at the connection of the loan.
func TestContextEndsAsTheLoanBegins(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	key := hex.EncodeToString(make([]byte, 16))
	c := &cutConn{
		answer: fmt.Sprintf(`{"grant":{"region":1,"length":64,"read":%q,"write":%q,"rekey":%q}}`+"\n", key, key, key),
		end:    cancel, set: make(chan time.Time, 2),
	}
	loan, err := borrow(ctx, &Process{}, c, netip.AddrFrom4([4]byte{10, 0, 0, 1}), 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := loan.Close(); err != nil {
		t.Error(err)
	}
	select {
	case c.last = <-c.set:
	default:
	}
	if !c.last.IsZero() {
		t.Errorf("the deadline is %v", c.last)
	}
}
