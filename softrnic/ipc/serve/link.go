package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
)

// Limits of an application's control socket.
const (
	// writeWait is how long an answer may wait for room in the application's socket or in the queue
	// link.out. Then the application, which does not read, is disconnected.
	writeWait = 2 * time.Second
	// maxOutgoing is the largest number of answers and events that wait to be sent; further events
	// are lost.
	maxOutgoing = 256
)

// link is the control socket to one application. It sends answers and events in order.
type link struct {
	conn *net.UnixConn
	out  chan outgoing
	gone chan struct{} // closed when the client is being detached
	// sending is locked while a message is sent, until the descriptors of the message are closed.
	sending sync.Mutex

	mu     sync.Mutex // guards the fields below
	reason string     // why the application was disconnected
}

func newLink(conn *net.UnixConn) link {
	return link{conn: conn, out: make(chan outgoing, maxOutgoing), gone: make(chan struct{})}
}

// outgoing is a message with its file descriptors, which are closed after it is sent.
type outgoing struct {
	data []byte
	fds  []int
}

// parse decodes a request and checks its form.
func parse(b []byte) (req proto.Request, err error) {
	if len(b) > proto.MaxMessage {
		return req, errors.New("a message is too long")
	}
	if err := strict(b, &req); err != nil {
		return req, fmt.Errorf("malformed message: %w", err)
	}
	if req.ID == 0 {
		return req, errors.New("malformed message: ID 0")
	}
	return req, nil
}

// because records why the connection ends. Later reasons are ignored.
func (l *link) because(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason == "" {
		l.reason = reason
	}
}

func (l *link) cut(reason string) {
	l.because(reason)
	_ = l.conn.Close() // a second Close does nothing
}

// write sends the messages in out until the client is detached.
func (l *link) write() {
	for {
		select {
		case <-l.gone:
			return
		case m := <-l.out:
			if err := l.pass(m); err != nil {
				l.cut("answers are not read: " + err.Error())
			}
		}
	}
}

// pass sends a message and then closes its file descriptors here: the application has its own
// copies.
func (l *link) pass(m outgoing) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	err := l.send(m)
	_ = closeAll(m.fds)
	return err
}

// settle waits until the daemon has closed its copies of all descriptors that it has sent. After
// that, a descriptor that the application closes is closed everywhere.
func (l *link) settle() {
	l.sending.Lock()
	defer l.sending.Unlock()
}

// send sends a message within writeWait. It tries twice. If the host hangs, both sides stop, and
// the first deadline may pass although the application reads its messages.
func (l *link) send(m outgoing) (err error) {
	var oob []byte
	if len(m.fds) > 0 {
		oob = unix.UnixRights(m.fds...)
	}
	for range 2 {
		if err = l.conn.SetWriteDeadline(time.Now().Add(writeWait / 2)); err == nil {
			_, _, err = l.conn.WriteMsgUnix(m.data, oob, nil)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return err
}

// answer queues a reply with file descriptors, which are closed after the reply is sent. An
// application whose reply cannot be queued is disconnected, because it would wait forever.
func (l *link) answer(id uint64, result any, fds []int, err error) error {
	err = l.reply(id, result, fds, err)
	if err != nil {
		select {
		case <-l.gone: // detach ends the connection after it has freed all objects
		default:
			l.cut(err.Error())
		}
	}
	return err
}

func (l *link) reply(id uint64, result any, fds []int, err error) error {
	r := proto.Reply{ID: id, Error: proto.ErrorOf(err)}
	if err == nil && result != nil {
		b, merr := json.Marshal(result)
		if merr != nil {
			return errors.Join(merr, closeAll(fds))
		}
		r.Result = b
	}
	data, err := json.Marshal(r)
	if err != nil {
		return errors.Join(err, closeAll(fds))
	}
	select {
	case l.out <- outgoing{data, fds}:
		return nil
	case <-l.gone:
	case <-time.After(writeWait):
	}
	return errors.Join(errors.New("answers are not read"), closeAll(fds))
}

// discard closes the file descriptors of messages that will not be sent.
func (l *link) discard() error {
	var errs []error
	for {
		select {
		case m := <-l.out:
			errs = append(errs, closeAll(m.fds))
		default:
			return errors.Join(errs...)
		}
	}
}

func closeAll(fds []int) (err error) {
	for _, fd := range fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}
