package hostd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/perftestpeer"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// PeerRequest asks for a run with a program that is not part of this project: ibv_*_pingpong or
// perftest. Exactly one of Pingpong and Perftest is set.
type PeerRequest struct {
	Pingpong *perftestpeer.Pingpong `json:"pingpong,omitempty"`
	Perftest *perftestpeer.Perftest `json:"perftest,omitempty"`
	// To is the server: the name of a host, or an address. "" means that this host is the server.
	To string `json:"to,omitempty"`
	// Port is the TCP port for the exchange of parameters; 0 means perftestpeer.DefaultPort.
	Port uint16 `json:"port,omitempty"`
}

// PeerEvent is one line of the answer to a PeerRequest. If the host is the server, the first line has
// its address. The last line has the result.
type PeerEvent struct {
	Listening string               `json:"listening,omitempty"`
	Result    *perftestpeer.Result `json:"result,omitempty"`
}

// Bounds of a run with another program.
const (
	// dialLimit is how long a server may take to start, dialPause the pause between two attempts to
	// connect to it.
	dialLimit = 10 * time.Second
	dialPause = 100 * time.Millisecond
	// peerLimit bounds the whole run, because the same connection serves the exchanges at its start
	// and at its end.
	peerLimit = 15 * time.Minute
)

// name returns the name of the request's job. It also fills in the request's defaults, and checks
// the request.
func (q *PeerRequest) name() (string, error) {
	switch {
	case (q.Pingpong == nil) == (q.Perftest == nil):
		return "", errors.New("peer request: it has both pingpong and perftest, or neither; it must have exactly one")
	case q.Pingpong != nil:
		q.Pingpong.Server = q.To == ""
		return q.Pingpong.Type + "_pingpong", q.Pingpong.Validate()
	}
	q.Perftest.Server = q.To == ""
	return "ib_" + q.Perftest.Test, q.Perftest.Validate()
}

func (h *Host) runPeer(r *http.Request, in PeerRequest, send func(PeerEvent) error) error {
	name, err := in.name()
	if err != nil {
		return control.Errorf(http.StatusBadRequest, "%v", err)
	}
	in.Port = cmp.Or(in.Port, perftestpeer.DefaultPort)
	var to netip.Addr
	if in.To != "" {
		if to, err = h.address(in.To); err != nil {
			return err
		}
		name += " to " + in.To
	}
	return h.app.do(r, name, func(ctx context.Context, v verbs.Context) error {
		conn, err := meetPeer(ctx, h.cfg.inside, to, in.Port, send)
		if err != nil {
			return err
		}
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() {
			_ = conn.Close()
			_ = v.Close() // ends every wait; the end of the job closes v again and reports errors
		})
		defer stop()
		if err := conn.SetDeadline(time.Now().Add(peerLimit)); err != nil {
			return err
		}
		var res perftestpeer.Result
		if in.Pingpong != nil {
			res, err = in.Pingpong.Run(v, conn)
		} else {
			res, err = in.Perftest.Run(v, conn)
		}
		if err != nil {
			return err
		}
		return send(PeerEvent{Result: &res})
	})
}

// meetPeer connects to the server at `to`, which may still be starting. If `to` is not valid, it
// waits for a client.
func meetPeer(ctx context.Context, inside func(open func() error) error, to netip.Addr, port uint16, send func(PeerEvent) error) (net.Conn, error) {
	if !to.IsValid() {
		return awaitPeer(ctx, inside, port, send)
	}
	for end := time.Now().Add(dialLimit); ; {
		var conn net.Conn
		err := inside(func() (err error) {
			var d net.Dialer
			conn, err = d.DialContext(ctx, "tcp", netip.AddrPortFrom(to, port).String())
			return err
		})
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return conn, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(dialPause):
		}
	}
}

func awaitPeer(ctx context.Context, inside func(open func() error) error, port uint16, send func(PeerEvent) error) (net.Conn, error) {
	var l net.Listener
	err := inside(func() (err error) {
		var lc net.ListenConfig
		l, err = lc.Listen(ctx, "tcp", ":"+strconv.Itoa(int(port)))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("wait for a client: %w", err)
	}
	defer l.Close()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	if err := send(PeerEvent{Listening: l.Addr().String()}); err != nil {
		return nil, err
	}
	conn, err := l.Accept()
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return conn, err
}
