package host_test

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/onerma/host"
)

// failing is a listener whose first Accept fails, as when the process has no descriptor left.
type failing struct {
	net.Listener
	calls atomic.Int32
}

func (l *failing) Accept() (net.Conn, error) {
	if l.calls.Add(1) == 1 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// A Lender goes on when one connection could not be accepted.
func TestLenderGoesOn(t *testing.T) {
	r := up(t)
	l, err := net.Listen("tcp", net.JoinHostPort(addr(1).String(), "4792"))
	if err != nil {
		t.Fatal(err)
	}
	lender := r.process(t, 1).Lend(&failing{Listener: l}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if loan, err := host.Borrow(ctx, r.process(t, 0), addr(1), 64); err != nil {
		t.Error(err)
	} else if err := loan.Close(); err != nil {
		t.Error(err)
	}
	if err := lender.Close(); err != nil {
		t.Error(err)
	}
}
