package interop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/interop/ask"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// machine is the configuration of the peer "vm", as JSON on its standard input; the end of that
// input ends the machine.
type machine struct {
	Kernel  string   `json:"kernel"`
	Initrd  string   `json:"initrd"`
	MAC     wire.MAC `json:"mac"`
	MTU     int      `json:"mtu"`
	Addrs   []string `json:"addrs"`   // with prefix lengths
	Command string   `json:"command"` // path of the unix socket of the guest's port for commands
	Verbs   string   `json:"verbs"`   // and of the sockets for guest/verbs.py, each with its number appended
	Console string   `json:"console"` // file
}

const qemu = "qemu-system-x86_64"

// socketBuffer holds the frames of one side while the other is not scheduled.
const socketBuffer = 4 << 20

// virtualMachine runs inside a host of the rack: a virtual machine as a second station on the
// host's link. Its interface is a socket pair; a relay copies frames between that and the link, so
// the switch sees a further MAC address behind the same port and does not treat virtual machines in
// a special way.
func virtualMachine(in io.Reader) error {
	var m machine
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
	cmd := exec.Command(qemu, m.args()...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 3)
	go func() { ended <- cmd.Wait() }()
	r, err := newRelay(ours, m.MAC)
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

// args are QEMU's arguments. The processors are emulated, because not every machine has KVM; with
// pclmulqdq emulated, rxe's CRC would be slower. One of two is left to the driver when a program polls.
func (m *machine) args() []string {
	line := fmt.Sprintf("console=ttyS0 quiet loglevel=4 panic=-1 nokaslr mitigations=off tsc=reliable rdmalab.mtu=%d", m.MTU)
	for _, a := range m.Addrs {
		line += " rdmalab.ip=" + a
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-M", "q35", "-m", "768M", "-smp", "2",
		"-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max,-pclmulqdq",
		"-kernel", m.Kernel, "-initrd", m.Initrd, "-append", line, "-serial", "file:" + m.Console,
		"-netdev", "dgram,id=net,local.type=fd,local.str=3",
		"-device", "virtio-net-pci,netdev=net,mac=" + m.MAC.String() + ",romfile=,csum=off,gso=off,guest_csum=off," +
			"guest_tso4=off,guest_tso6=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ufo=off",
		"-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
		"-chardev", "socket,id=command,server=on,wait=off,path=" + m.Command,
		"-device", "virtserialport,chardev=command,name=" + ask.CommandPort,
	}
	for i := range ask.VerbsPorts {
		args = append(args,
			"-chardev", fmt.Sprintf("socket,id=verbs%d,server=on,wait=off,path=%s%d", i, m.Verbs, i),
			"-device", fmt.Sprintf("virtserialport,chardev=verbs%d,name=%s", i, ask.VerbsPort(i)))
	}
	return args
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
	port, err := afpacket.Open(afpacket.Config{Ifname: spec.HostIfname, Mode: afpacket.Tap})
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
