package ask

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone means that the virtual machine has ended, or closed its port.
var ErrGone = errors.New("the guest is gone")

// KillLimit is how long the guest may take to end a program that ran for too long.
const KillLimit = 10 * time.Second

// Client asks a guest over its command port. Several goroutines may use it.
type Client struct {
	enc  *json.Encoder
	mu   sync.Mutex // guards the fields below, and writes to enc
	next int
	wait map[int]chan Answer // by ID; nil after the guest has gone
}

// NewClient returns a client of the guest at the other end of c. The client reads until c ends; the
// caller closes c.
func NewClient(c io.ReadWriter) *Client {
	cl := &Client{enc: json.NewEncoder(c), wait: map[int]chan Answer{}}
	go cl.read(c)
	return cl
}

func (c *Client) read(r io.Reader) {
	dec := json.NewDecoder(r)
	for {
		var a Answer
		err := dec.Decode(&a)
		c.mu.Lock()
		if err != nil {
			for _, w := range c.wait {
				close(w)
			}
			c.wait = nil
			c.mu.Unlock()
			return
		}
		if w := c.wait[a.ID]; w != nil {
			w <- a
			delete(c.wait, a.ID)
		}
		c.mu.Unlock()
	}
}

// Begin starts a program in the guest, with variables NAME=VALUE besides those that all have. The
// error is ErrGone, or one of the connection.
func (c *Client) Begin(env []string, args ...string) (*Program, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wait == nil {
		return nil, ErrGone
	}
	c.next++
	p := &Program{client: c, id: c.next, args: args, ended: make(chan Answer, 1)}
	c.wait[p.id] = p.ended
	if err := c.enc.Encode(Question{ID: p.id, Args: args, Env: env}); err != nil {
		delete(c.wait, p.id)
		return nil, fmt.Errorf("ask the guest: %w", err)
	}
	return p, nil
}

// Program is a program that runs in a guest.
type Program struct {
	client *Client
	id     int
	args   []string
	ended  chan Answer
}

// Finish waits for the program's end, and kills the program after limit. Code is -1 if the program
// did not end by itself, or the guest is gone.
func (p *Program) Finish(limit time.Duration) Answer {
	select {
	case a, ok := <-p.ended:
		if !ok {
			return Answer{ID: p.id, Code: -1, Output: ErrGone.Error()}
		}
		return a
	case <-time.After(limit):
	}
	p.Signal(0)
	said := ""
	select {
	case a := <-p.ended:
		said = a.Output
	case <-time.After(KillLimit):
	}
	return Answer{ID: p.id, Code: -1, Output: fmt.Sprintf("%v: no end within %v; it said: %s", p.args, limit, said)}
}

// Signal sends the program a signal; 0 is KILL. A program that has ended gets none, nor does one in
// a guest that is gone.
func (p *Program) Signal(s unix.Signal) {
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	_ = p.client.enc.Encode(Question{ID: p.id, Signal: int(s)}) // the guest may be gone
}
