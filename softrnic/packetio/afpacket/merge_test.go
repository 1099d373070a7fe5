package afpacket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// rocePackets returns n packets of a queue pair in a row.
func rocePackets(n, size int) *packetio.Batch {
	var b packetio.Batch
	for i := range n {
		f := make([]byte, 42+size)
		copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protoUDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0xc0, 1, 0x12, 0xb7})
		binary.BigEndian.PutUint16(f[16:], uint16(28+size))
		binary.BigEndian.PutUint16(f[18:], uint16(0xfff8+i)) // so that PSNs wrap
		binary.BigEndian.PutUint16(f[24:], checksum(f[14:34]))
		binary.BigEndian.PutUint16(f[38:], uint16(8+size))
		for k := range f[42:] {
			f[42+k] = byte(i + k)
		}
		b.Add(0, f)
	}
	return &b
}

func TestMerging(t *testing.T) {
	isolated(t, 4200, func(t *testing.T) {
		a := open(t, Config{Ifname: endA, Merge: true})
		b := open(t, Config{Ifname: endB, Mode: Switch})
		for _, c := range []struct{ n, size, want int }{
			{1, 30, 1},
			{20, 30, 1},
			{100, 30, 2},  // two system calls
			{40, 4116, 3}, // 15 packets fit into one datagram
			{5, 5000, 0},  // longer than the MTU: the link refuses them
		} {
			sent := rocePackets(c.n, c.size)
			n, err := a.Send(sent)
			if err != nil || n != c.n && c.want > 0 || n != 0 && c.want == 0 {
				t.Fatalf("%d of %d packets of %d bytes left, %v", n, c.n, c.size, err)
			}
			var split packetio.Batch
			got := receive(t, b, c.want)
			for _, f := range got {
				split.Split(f)
			}
			if len(got) != c.want || len(split.Frames) != n {
				t.Fatalf("%d packets of %d bytes came as %d in %d frames, want %d", c.n, c.size, len(split.Frames), len(got), c.want)
			}
			for i, f := range split.Frames {
				if !bytes.Equal(f.Data, sent.Frames[i].Data) {
					t.Fatalf("packet %d of %d x %d bytes:\n%x\ncame as\n%x", i, c.n, c.size, sent.Frames[i].Data, f.Data)
				}
			}
		}
		sa, sb := a.Stats(), b.Stats()
		if sa.TxPackets != 161 || sb.RxPackets != 161 || sa.TxDropped != 5 || sb.RxDropped != 0 {
			t.Errorf("counted %+v and %+v, want 161 packets and 5 refused", sa, sb)
		}
		if sa.TxBytes != 121*72+40*4158 {
			t.Errorf("%d bytes sent", sa.TxBytes)
		}
	})
}

// An interface without segmentation gets the packets one by one after it has refused them as
// super-frames.
func TestMergingWithoutOffload(t *testing.T) {
	isolated(t, 4200, func(t *testing.T) {
		const name = "tapm"
		fd := openTap(t, name)
		setUp(t, name, true)
		p := open(t, Config{Ifname: name, Merge: true})
		for round := range 2 {
			sent := rocePackets(20, 30)
			if n, err := p.Send(sent); n != 20 || err != nil {
				t.Fatalf("Send: %d, %v", n, err)
			}
			buf := make([]byte, 4096)
			for i := range sent.Frames {
				n := readTap(t, fd, buf)
				if !bytes.Equal(buf[:n], sent.Frames[i].Data) {
					t.Fatalf("round %d, packet %d:\n%x\ncame as\n%x", round, i, sent.Frames[i].Data, buf[:n])
				}
			}
		}
		if s := p.Stats(); s.TxPackets != 40 || s.TxDropped != 0 {
			t.Errorf("counted %+v", s)
		}
	})
}

// A cable that was down and is up again carries super-frames as before.
func TestMergingAfterACut(t *testing.T) {
	isolated(t, 4200, func(t *testing.T) {
		a := open(t, Config{Ifname: endA, Merge: true})
		b := open(t, Config{Ifname: endB, Mode: Switch})
		merged := func(when string) {
			t.Helper()
			if n, err := a.Send(rocePackets(20, 30)); n != 20 || err != nil {
				t.Fatalf("%s: %d of 20 packets left, %v", when, n, err)
			}
			if got := receive(t, b, 1); len(got) != 1 {
				t.Errorf("%s: 20 packets came in %d frames", when, len(got))
			}
		}
		merged("whole")
		for range 3 {
			setUp(t, endB, false) // the carrier is lost here when the other end goes down
			for range 3 {
				if n, err := a.Send(rocePackets(20, 30)); n != 0 || err != nil {
					t.Fatalf("cut: %d packets left, %v", n, err)
				}
			}
			setUp(t, endB, true)
			merged("mended")
		}
		if s := a.Stats(); s.TxDropped != 180 || s.TxPackets != 80 {
			t.Errorf("counted %+v, want 80 packets, and 180 dropped by the cut cable", s)
		}
	})
}

// Only an error about super-frames ends merging for good; an error from a full queue or a cable
// that is down only pauses it.
func TestWhatEndsMerging(t *testing.T) {
	for errno, want := range map[unix.Errno]struct {
		alone bool
		limit int
	}{
		unix.EINVAL: {true, 0}, unix.EMSGSIZE: {true, 0}, unix.EOPNOTSUPP: {true, 0},
		unix.ENOBUFS: {true, 4214}, unix.EAGAIN: {false, 4214}, unix.ENOMEM: {false, 4214}, unix.ENETDOWN: {false, 4214},
		unix.EINTR: {false, 4214}, unix.EPERM: {false, 4214},
	} {
		m := merging{limit: 4214}
		if alone := m.refused(errno); alone != want.alone || m.limit != want.limit || m.begin() != want.limit {
			t.Errorf("%v: alone %v, limit %d, want %+v", errno, alone, m.limit, want)
		}
	}
	m := merging{limit: 4214}
	m.pause()
	rests := 0
	for m.begin() == 0 {
		rests++
	}
	if rests != restSends || m.begin() != 4214 {
		t.Errorf("it rests for %d Sends", rests)
	}
}

// openTap makes an interface whose other end is a file.
func openTap(t *testing.T, name string) int {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("needs /dev/net/tun")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		t.Fatal(err)
	}
	return fd
}

// readTap reads the next RoCEv2 packet: the kernel may send others.
func readTap(t *testing.T, fd int, buf []byte) int {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			time.Sleep(time.Millisecond)
		case err != nil:
			t.Fatal(err)
		case n > 42 && binary.BigEndian.Uint16(buf[36:]) == 4791:
			return n
		}
	}
	t.Fatal("no packet came")
	return 0
}
