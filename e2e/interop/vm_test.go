package interop_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/interop/image"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// socketBuffer holds the frames of one side while the other is not scheduled.
const socketBuffer = 4 << 20

// virtualMachine runs inside a host of the rack: a virtual machine as a second station on the
// host's link. Its interface is a socket pair; a relay copies frames between that and the link, so
// the switch sees a further MAC address behind the same port and does not treat virtual machines in
// a special way. An image.Machine as JSON is the first of its input; the end of that input ends the
// machine.
func virtualMachine(in io.Reader) error {
	var m image.Machine
	dec := json.NewDecoder(in)
	if err := dec.Decode(&m); err != nil {
		return err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for _, fd := range fds {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer); err != nil {
			return err
		}
	}
	theirs, ours := os.NewFile(uintptr(fds[0]), "guest"), fds[1]
	cmd := exec.Command(image.QEMU, m.Args()...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 3)
	go func() { ended <- cmd.Wait() }()
	r, err := newRelay(ours, m.Links[0])
	if err != nil {
		return errors.Join(err, cmd.Process.Kill(), <-ended)
	}
	go func() { ended <- r.fromGuest() }()
	go func() { ended <- r.toGuest() }()
	go func() { // until the input ends
		_, err := io.Copy(io.Discard, in)
		ended <- errors.Join(err, cmd.Process.Kill())
	}()
	return <-ended // this process ends, and the machine with it
}

// relay copies frames between a guest and a link.
type relay struct {
	guest int
	mac   wire.MAC
	mu    sync.Mutex // guards port
	port  *afpacket.Port
	wait  *afpacket.Waiter
}

func newRelay(guest int, mac wire.MAC) (*relay, error) {
	port, err := afpacket.Open(afpacket.Config{Ifname: rackfile.HostIfname, Mode: afpacket.Tap})
	if err != nil {
		return nil, err
	}
	w, err := afpacket.NewWaiter(0, port)
	if err != nil {
		return nil, errors.Join(err, port.Close())
	}
	return &relay{guest: guest, mac: mac, port: port, wait: w}, nil
}

// fromGuest copies frames until the guest's end is closed.
func (r *relay) fromGuest() error {
	buf := make([]byte, 1<<16)
	var b packetio.Batch
	for {
		n, err := unix.Read(r.guest, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		b.Reset()
		b.Add(0, buf[:n])
		r.mu.Lock()
		_, err = r.port.Send(&b)
		r.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// toGuest copies frames until the link is gone. A frame for which the guest has no room is lost, as
// on any wire.
func (r *relay) toGuest() error {
	var in, out packetio.Batch
	for {
		if err := r.wait.Wait(-1); err != nil {
			return err
		}
		r.mu.Lock()
		_, err := r.port.Recv(&in)
		out.Reset()
		for _, f := range in.Frames {
			if len(f.Data) >= 14 && (f.Data[0]&1 != 0 || string(f.Data[:6]) == string(r.mac[:])) {
				r.add(&out, f)
			}
		}
		r.mu.Unlock()
		if err != nil {
			return err
		}
		for _, f := range out.Frames {
			if _, err := unix.SendmsgN(r.guest, f.Data, nil, nil, unix.MSG_NOSIGNAL); err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	}
}

// add does what the link would have left to hardware: it splits super-frames and sets checksums.
func (r *relay) add(out *packetio.Batch, f packetio.Frame) {
	if f.Splittable() {
		out.Split(f)
		return
	}
	out.Copy(f)
	out.Frames[len(out.Frames)-1].FinishChecksum()
}
