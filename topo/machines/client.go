package machines

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/rackplan"
)

// Client reaches a rack on several machines from where `rdmalab up` was called.
type Client struct {
	Rack  *rackfile.Rack
	Paths rackfile.Paths
	conns []*conn
}

// Open returns the client of the rack called name; false if this is not the place of one, or if a client
// has started this program on a machine of the rack.
func Open(name string) (*Client, bool, error) {
	if os.Getenv(rackfile.EnvSlice) != "" {
		return nil, false, nil
	}
	return openAt(rackfile.ClientOf(name))
}

func openAt(paths rackfile.Paths) (*Client, bool, error) {
	data, err := os.ReadFile(paths.Spec())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, true, err
	}
	r, err := rackfile.Decode(data)
	if err != nil {
		return nil, true, fmt.Errorf("%w: remove %s", err, paths.Dir)
	}
	return clientOf(r, paths), true, nil
}

// OpenRack is rack.Open, and of a rack on several machines a handle that reaches all of them. trouble gets
// the error for machines that do not answer.
func OpenRack(ctx context.Context, name string, trouble func(error)) (*rack.Rack, error) {
	c, several, err := Open(name)
	switch {
	case err != nil:
		return nil, err
	case !several:
		return rack.Open(name)
	}
	if err := c.Connect(ctx); err != nil {
		trouble(err)
	}
	return rack.Far(c.Rack, c.Paths, c.Status), nil
}

func clientOf(r *rackfile.Rack, paths rackfile.Paths) *Client {
	c := &Client{Rack: r, Paths: paths}
	for _, m := range r.Machines {
		c.conns = append(c.conns, &conn{machine: m, rack: r, paths: paths})
	}
	return c
}

// each calls f for all machines at once, and joins the errors in the order of the machines.
func (c *Client) each(f func(i int, m *conn) error) error {
	errs := make([]error, len(c.conns))
	var wg sync.WaitGroup
	for i, m := range c.conns {
		wg.Go(func() { errs[i] = f(i, m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// of returns the connection to a machine.
func (c *Client) of(machine string) (*conn, error) {
	for _, m := range c.conns {
		if m.machine.Name == machine {
			return m, nil
		}
	}
	return nil, fmt.Errorf("rack %q has no machine %q", c.Rack.Name, machine)
}

// Connect opens the connections to all machines that answer. The control sockets of their nodes are then
// in Paths.
func (c *Client) Connect(ctx context.Context) error {
	return c.each(func(_ int, m *conn) error { return m.open(ctx) })
}

// make makes the client's folder for a new rack, in that of all racks, which is there with its lock.
func (c *Client) make(secret []byte) error {
	for _, dir := range []string{c.Paths.Dir, filepath.Dir(c.Paths.Socket("x")), filepath.Dir(c.Paths.SSH("x"))} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	text, err := c.Rack.Encode()
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(c.Paths.Secret(), secret, 0o600), os.WriteFile(c.Paths.Spec(), text, 0o600))
}

// forget ends the connections, and removes the client's folder.
func (c *Client) forget() error {
	return errors.Join(c.each(func(_ int, m *conn) error { return m.close() }), os.RemoveAll(c.Paths.Dir))
}

// locked calls f while no other command makes or removes the client's folder of a rack.
func locked(ctx context.Context, paths rackfile.Paths, f func() error) error {
	release, err := rack.Lock(ctx, paths)
	if err != nil {
		return err
	}
	err = f()
	_, gone := os.Lstat(paths.Dir)
	return errors.Join(err, release(errors.Is(gone, fs.ErrNotExist)))
}

// Up brings a rack up on its machines, and returns ErrAlreadyUp if it is up on all. A machine on which the
// slice is missing gets it again. After an error, what this call has made on any machine is gone, except
// where the error says otherwise; of a rack that was up before, slices stay if it is not certain that this
// call has made them.
func Up(ctx context.Context, r *rackfile.Rack, version string) (c *Client, err error) {
	err = locked(ctx, rackfile.ClientOf(r.Name), func() (err error) {
		c, err = up(ctx, r, version)
		return err
	})
	return c, err
}

// up is Up for the caller that holds the lock.
func up(ctx context.Context, r *rackfile.Rack, version string) (*Client, error) {
	if err := Distinct(ctx, r); err != nil {
		return nil, err
	}
	c, old, err := Open(r.Name)
	if err != nil {
		return nil, err
	}
	var secret []byte
	if old {
		if secret, err = c.known(r); err != nil {
			return nil, err
		}
	} else {
		secret = make([]byte, secretSize)
		if _, err := rand.Read(secret); err != nil {
			return nil, err
		}
		own := *r
		own.Generation = uint64(time.Now().UnixMicro())
		c = clientOf(&own, rackfile.ClientOf(r.Name))
		if err := c.make(secret); err != nil {
			return nil, errors.Join(err, c.forget())
		}
	}
	c.again()
	if err = c.applyAll(ctx, version, secret, old); err != nil && !errors.Is(err, rack.ErrAlreadyUp) {
		return nil, err
	}
	return c, err
}

// applyAll brings all slices up, or undoes what it has made. It returns ErrAlreadyUp if all were up. old
// says that the rack was up before.
func (c *Client) applyAll(ctx context.Context, version string, secret []byte, old bool) error {
	made := make([]bool, len(c.conns))
	err := c.Connect(ctx)
	if err == nil {
		err = c.each(func(i int, m *conn) (err error) {
			made[i], err = c.apply(ctx, m, version, secret, old)
			return err
		})
	}
	switch {
	case err != nil:
		return errors.Join(err, c.undo(made, old))
	case !slices.Contains(made, true):
		return rack.ErrAlreadyUp
	}
	return nil
}

// again lets the next command try machines that did not answer just before.
func (c *Client) again() {
	for _, m := range c.conns {
		_ = os.Remove(m.lost()) // there is one only if it did not answer
	}
}

// known returns the secret of the rack that this client has brought up, if r is the same.
func (c *Client) known(r *rackfile.Rack) ([]byte, error) {
	p, err := rackplan.Of(rackplan.OfDescription(c.Rack), r, false)
	if err != nil || !p.Empty() {
		return nil, fmt.Errorf("rack %q is up on its machines from another rack file: run `rdmalab down` first, or choose another name", r.Name)
	}
	return os.ReadFile(c.Paths.Secret())
}

// apply brings the slice of a machine up. It reports whether the machine has now a slice that it had not.
// Of a rack that is not old it reports so, too, if the answer is missing: a slice of this generation can
// only be of this call. That of an old rack may have been there.
func (c *Client) apply(ctx context.Context, m *conn, version string, secret []byte, old bool) (made bool, err error) {
	slice, err := sliceOf(c.Rack, m.machine.Name, version, secret)
	if err != nil {
		return false, err
	}
	out, err := m.run(ctx, bytes.NewReader(slice), "slice", "apply")
	if err != nil {
		var gone *Unreachable
		return !old && (errors.As(err, &gone) || ctx.Err() != nil), err
	}
	var a Applied
	if err := json.Unmarshal(out, &a); err != nil {
		return !old, fmt.Errorf("machine %s: answer of slice apply: %w", m.machine.Name, err)
	}
	return a.Made, nil
}

// Applied is the answer of slice apply.
type Applied struct {
	// Made is false if the slice was up already.
	Made bool `json:"made"`
}

// undo takes away what a failed Up has made. If that fails, the client's folder of a new rack stays for Down.
func (c *Client) undo(made []bool, old bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), undoWait)
	defer cancel()
	err := c.each(func(i int, m *conn) error {
		if !made[i] {
			return nil
		}
		return m.remove(ctx)
	})
	switch {
	case old:
		return err
	case err != nil:
		return fmt.Errorf("%w\nWhat is left there goes away by `rdmalab down` when the machine is back, or is forgotten by `rdmalab down --lost`", err)
	}
	return c.forget()
}

// undoWait bounds how long what a failed Up has made may take to end.
const undoWait = 30 * time.Second

// remove takes the slice of a machine away.
func (c *conn) remove(ctx context.Context) error {
	_, err := c.run(ctx, nil, "slice", "down", "--generation", fmt.Sprint(c.rack.Generation))
	return err
}

// Down takes the rack away from all machines. A machine that does not answer keeps its slice, and Down the
// client's folder, unless force is set.
func (c *Client) Down(ctx context.Context, force bool) error {
	err := locked(ctx, c.Paths, func() error {
		switch now, there, err := openAt(c.Paths); {
		case err != nil:
			return err
		case !there:
			return nil // another command has taken it away meanwhile
		case now.Rack.Generation != c.Rack.Generation:
			return fmt.Errorf("rack %q was taken away, and brought up again, by another rdmalab meanwhile: run `rdmalab down` again if it is to go", c.Rack.Name)
		}
		return c.down(ctx, force)
	})
	if errors.Is(err, rack.ErrBusy) {
		return fmt.Errorf("rack %q: %w", c.Rack.Name, err)
	}
	return err
}

// down is Down for the caller that holds the lock.
func (c *Client) down(ctx context.Context, force bool) error {
	c.again()
	err := c.each(func(_ int, m *conn) error { return m.remove(ctx) })
	if err != nil && !force {
		return fmt.Errorf("%w\nThe rest is down: run `rdmalab down` again when the machine is back, or `rdmalab down --lost` if it never will be", err)
	}
	return c.forget()
}

// Status asks all machines for the status of their slices, and makes one of them.
func (c *Client) Status(ctx context.Context) (rack.Status, error) {
	parts := make([]rack.Status, len(c.conns))
	errs := make([]error, len(c.conns))
	_ = c.each(func(i int, m *conn) error {
		out, err := m.run(ctx, nil, "slice", "status", "-o", "json")
		if err == nil {
			err = json.Unmarshal(out, &parts[i])
		}
		errs[i] = err
		return nil
	})
	return c.merge(parts, errs), ctx.Err()
}

// Run runs a command of rdmalab on a machine, which reads in (nil: nothing) and has this program's other
// files, and returns its exit status.
func (c *Client) Run(ctx context.Context, machine string, in io.Reader, tty bool, args ...string) (int, error) {
	m, err := c.of(machine)
	if err != nil {
		return 0, err
	}
	if err := m.open(ctx); err != nil {
		return 0, err
	}
	cmd := m.remote(ctx, tty, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	// A program may end with the status that ssh has if the connection breaks, and then that is closed.
	if errors.As(err, &exit) && exit.ExitCode() > 0 && (exit.ExitCode() != sshFailed || m.alive()) {
		return exit.ExitCode(), nil
	}
	return 0, m.explain(ctx, err, "")
}

// Logs writes the logs of each machine to a file in dir.
func (c *Client) Logs(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return c.each(func(_ int, m *conn) error {
		text, err := m.run(ctx, nil, "logs")
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, m.machine.Name+".log"), text, 0o644)
	})
}

// RunAll runs a command of rdmalab on all machines at once, and writes the lines that it prints to out.
func (c *Client) RunAll(ctx context.Context, out io.Writer, args ...string) error {
	var mu sync.Mutex
	return c.each(func(_ int, m *conn) error {
		if err := m.open(ctx); err != nil {
			return err
		}
		cmd := m.remote(ctx, false, args...)
		var said bytes.Buffer
		cmd.Stderr = &limited{&said}
		lines, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return m.unreachable("", err)
		}
		failed := copyLines(&mu, out, lines)
		return errors.Join(failed, m.explain(ctx, cmd.Wait(), said.String()))
	})
}

// copyLines writes whole lines of in, each while it holds mu.
func copyLines(mu *sync.Mutex, out io.Writer, in io.Reader) error {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			mu.Lock()
			_, failed := io.WriteString(out, strings.TrimSuffix(line, "\n")+"\n")
			mu.Unlock()
			if failed != nil {
				return failed
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
