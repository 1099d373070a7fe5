package tap

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// capture runs a capture while during runs, and returns the packets that were read, one a line.
func capture(t *testing.T, h *Hub, o Options, w io.Writer, during func()) (string, Summary, error) {
	t.Helper()
	var buf bytes.Buffer
	if w == nil {
		w = &buf
	}
	var sum Summary
	var err error
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			sum, err = h.Capture(ctx, w, o)
		}()
		synctest.Wait()
		during()
		synctest.Wait()
		stop()
		<-done
	})
	return list(t, &buf), sum, err
}

func list(t *testing.T, r io.Reader) string {
	t.Helper()
	pr, err := pcapng.NewReader(r)
	if err != nil {
		return ""
	}
	var b strings.Builder
	var p pcapng.Packet
	for {
		switch err := pr.Next(&p); {
		case errors.Is(err, io.EOF):
			return b.String()
		case err != nil:
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d %d/%d %q\n", p.Name, p.Time, len(p.Data), p.OrigLen, strings.Join(p.Comments, ";"))
	}
}

func TestCapture(t *testing.T) {
	h := NewHub([]string{"cn0", "ms0"})
	frame := packetio.Frame{Data: make([]byte, 100)}
	h.Frame(1, 0, Up, frame, "no reader yet")
	show := func() {
		h.Frame(10, 0, Up, frame, "")
		h.Frame(20, 1, Down, frame, "dropped by f1 (loss)")
		h.Frame(30, 1, Up, frame, "")
	}
	for _, tc := range []struct {
		o    Options
		want string
	}{
		{Options{}, "cn0 up 10 100/100 \"\"\nms0 down 20 100/100 \"dropped by f1 (loss)\"\nms0 up 30 100/100 \"\"\n"},
		{Options{Links: []string{"ms0"}}, "ms0 down 20 100/100 \"dropped by f1 (loss)\"\nms0 up 30 100/100 \"\"\n"},
		{Options{Links: []string{"ms0", "ms0"}, Only: "up", Snaplen: 64}, "ms0 up 30 64/100 \"\"\n"},
	} {
		got, sum, err := capture(t, h, tc.o, nil, show)
		if err != nil || got != tc.want || sum.Written != uint64(strings.Count(got, "\n")) || sum.Lost != 0 {
			t.Errorf("%+v: %v, %+v\n%swant\n%s", tc.o, err, sum, got, tc.want)
		}
	}
	if h.Active() {
		t.Error("still active")
	}
}

func TestRefusals(t *testing.T) {
	h := NewHub([]string{"cn0"})
	if _, err := h.Capture(t.Context(), io.Discard, Options{Links: []string{"cn9"}}); !errors.Is(err, ErrUnknownLink) || !strings.Contains(err.Error(), "cn0") {
		t.Errorf("unknown link: %v", err)
	}
	if _, err := h.Capture(t.Context(), io.Discard, Options{Only: "left"}); err == nil {
		t.Error("wrong direction passes")
	}
	if _, err := h.Capture(t.Context(), io.Discard, Options{Snaplen: -1}); err == nil {
		t.Error("negative snaplen passes")
	}
	h.readers = make([]*reader, maxReaders)
	if _, err := h.Capture(t.Context(), io.Discard, Options{}); !errors.Is(err, ErrTooMany) {
		t.Errorf("too many: %v", err)
	}
}

// fullDisk accepts a header and fails after that.
type fullDisk struct{ room int }

var errFull = errors.New("no space left")

func (f *fullDisk) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWriterErrorEndsTheCapture(t *testing.T) {
	h := NewHub([]string{"cn0"})
	_, _, err := capture(t, h, Options{}, &fullDisk{room: 500}, func() {
		for range 100 {
			h.Frame(1, 0, Up, packetio.Frame{Data: make([]byte, 1000)}, "")
		}
	})
	if !errors.Is(err, errFull) {
		t.Errorf("error %v", err)
	}
}

// If a reader does not read, its capture loses packets and reports how many; the sender of the
// packets does not wait.
func TestSlowReader(t *testing.T) {
	h := NewHub([]string{"cn0"})
	r, _, err := h.reader(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.join(r); err != nil {
		t.Fatal(err)
	}
	const n, size = 2000, 10_000
	for range n {
		h.Frame(1, 0, Up, packetio.Frame{Data: make([]byte, size)}, "")
	}
	if len(r.buf) > queueBytes {
		t.Errorf("%d bytes queued", len(r.buf))
	}
	_, lost := h.Readers()
	if want := uint64(n - queueBytes/(size+recordHeader)); lost != want {
		t.Errorf("%d lost, want %d", lost, want)
	}
	var buf bytes.Buffer
	w, _ := pcapng.NewWriter(&buf)
	for _, name := range []string{"cn0 up", "cn0 down"} {
		if _, err := w.AddInterface(name, pcapng.Ethernet); err != nil {
			t.Fatal(err)
		}
	}
	s := stream{reader: r, out: w, counts: make([]count, 2), said: make([]uint64, 2)}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	sum, err := s.run(ctx)
	if err != nil || sum.Lost != lost || sum.Written != n-lost || !bytes.Contains(buf.Bytes(), []byte("the reader was too slow")) {
		t.Errorf("summary %+v, %v", sum, err)
	}
}

func TestSuperFrameBecomesPackets(t *testing.T) {
	const headers = 14 + 20 + 8
	b := make([]byte, headers+3*40)
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	b[14], b[23] = 0x45, 17
	binary.BigEndian.PutUint16(b[36:], 4791)
	h := NewHub([]string{"cn0"})
	got, sum, _ := capture(t, h, Options{Snaplen: 60}, nil, func() {
		h.Frame(1, 0, Down, packetio.Frame{Data: b, SegSize: 40}, "x")
	})
	if sum.Written != 3 || got != strings.Repeat("cn0 down 1 60/82 \"x\"\n", 3) {
		t.Errorf("%+v\n%s", sum, got)
	}
}

func BenchmarkFrame(b *testing.B) {
	frame := packetio.Frame{Data: make([]byte, 1000)}
	b.Run("idle", func(b *testing.B) {
		h := NewHub([]string{"cn0"})
		b.ReportAllocs()
		for b.Loop() {
			h.Frame(1, 0, Up, frame, "")
		}
	})
	b.Run("captured", func(b *testing.B) {
		h := NewHub([]string{"cn0"})
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = h.Capture(ctx, io.Discard, Options{})
		}()
		for !h.Active() {
		}
		b.ReportAllocs()
		for b.Loop() {
			h.Frame(1, 0, Up, frame, "")
		}
		stop()
		<-done
	})
}
