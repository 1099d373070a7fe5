package memcached

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/memcached/text"
)

// upstreamTime is how long a front waits for a connection to the server, and for each answer.
const upstreamTime = 10 * time.Second

// Front describes a server on a client's host that reads items by a client of the table, for example
// over RDMA, and lets the table's own Server execute all commands but get.
type Front struct {
	// Upstream is the TCP address of the table's Server.
	Upstream string
	// Open makes the client of the table that reads for one connection. The front closes it.
	Open func() (Reader, error)
	// MaxValue is the length of the longest value of the table, in bytes.
	MaxValue int
	// Patience is how long one read may take.
	Patience time.Duration
}

// Reader is a client of the table, for one connection of a front. Now is the time of its deadlines.
type Reader interface {
	kv.Store
	Now() clock.Time
}

// ListenFront serves a front on an address like ":11211". The caller closes the Server.
func ListenFront(addr string, f Front) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := newServer(l, f.MaxValue)
	s.open = func() (session, error) { return f.session(&s.count) }
	s.wg.Go(s.accept)
	return s, nil
}

// front is the session of a connection of a front.
type front struct {
	gets executor // executes get
	c    Reader
	up   net.Conn
	in   *bufio.Reader // what the server answers
	out  []byte
	// silent is true if the last command of the server had no answer: it may not be executed yet.
	silent bool
	failed bool // as that of executor
}

func (f *Front) session(count *counts) (_ session, err error) {
	up, err := net.DialTimeout("tcp", f.Upstream, upstreamTime)
	if err != nil {
		return nil, err
	}
	c, err := f.Open()
	if err != nil {
		return nil, errors.Join(err, up.Close())
	}
	read := func(key uint64, dst []byte) ([]byte, uint64, error) {
		value, err := c.Get(key, dst, c.Now().Add(f.Patience))
		return value, 0, err
	}
	return &front{gets: executor{read: read, count: count}, c: c, up: up, in: bufio.NewReader(up)}, nil
}

// abort ends the wait for an answer of the server. It may be called at any time.
func (f *front) abort() { _ = f.up.Close() }

func (f *front) close() error { return errors.Join(f.c.Close(), f.up.Close()) }

func (f *front) execute(r *text.Request, w io.Writer) error {
	if f.failed || f.gets.failed { // the rest of a command that has its answer
		f.failed, f.gets.failed = r.More, r.More
		return nil
	}
	switch {
	case r.Refusal != "" && r.NoReply, r.Verb == text.Quit && r.Refusal == "":
		return nil
	case r.Refusal != "":
		_, err := w.Write(text.AppendLine(f.out[:0], r.Refusal))
		return err
	case r.Verb == text.Get:
		if err := f.settle(); err != nil {
			return err
		}
		return f.gets.execute(r, w)
	case r.Verb == text.Gets && len(r.Keys) == 0: // the end of a long line
		_, err := w.Write(text.AppendLine(f.out[:0], text.End))
		return err
	}
	return f.forward(r, w)
}

// settle waits until the server has executed what it gives no answer to. A get on the same
// connection, which does not pass the server, would otherwise overtake it.
func (f *front) settle() error {
	if !f.silent {
		return nil
	}
	return f.forward(&text.Request{Verb: text.Version}, io.Discard)
}

// forward lets the server execute a command, and writes its answer to w.
func (f *front) forward(r *text.Request, w io.Writer) error {
	if err := f.up.SetDeadline(time.Now().Add(upstreamTime)); err != nil {
		return err
	}
	f.out = text.AppendRequest(f.out[:0], r)
	if _, err := f.up.Write(f.out); err != nil {
		return err
	}
	if f.silent = r.NoReply; f.silent {
		return nil
	}
	for {
		line, err := f.in.ReadBytes('\n')
		if err != nil {
			return err
		}
		end := bytes.HasPrefix(line, []byte(text.End))
		if end && r.More {
			return nil
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		switch {
		case bytes.HasPrefix(line, []byte("VALUE ")):
			if err := f.data(line, w); err != nil {
				return err
			}
		case r.Verb == text.Stats && bytes.HasPrefix(line, []byte("STAT ")):
		default:
			f.failed = r.More && !end
			return nil
		}
	}
}

// data writes the data of an item, which follow its line, to w.
func (f *front) data(line []byte, w io.Writer) error {
	fields := bytes.Split(bytes.TrimSpace(line), []byte(" "))
	if len(fields) < 4 {
		return fmt.Errorf("the server answers %.60q", line)
	}
	n, err := strconv.ParseUint(string(fields[3]), 10, 31)
	if err != nil {
		return fmt.Errorf("the server answers %.60q", line)
	}
	_, err = io.CopyN(w, f.in, int64(n)+2) // and the end of the line
	return err
}
