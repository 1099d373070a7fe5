package pcapng

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func sample(t testing.TB) []byte {
	var buf bytes.Buffer
	w, err := NewWriter(&buf)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		func() error { _, err := w.AddInterface("a", Ethernet); return err }(),
		w.WritePacket(0, 1, []byte("one"), ""),
		w.WritePacket(0, 2, []byte("two!"), "touched"),
		w.WriteStatistics(0, 3, 10, 4, ""),
		w.WritePacket(0, 4, []byte("three"), ""),
		w.WriteStatistics(0, 5, 10, 5, "late"),
		w.Flush(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return buf.Bytes()
}

func TestCopy(t *testing.T) {
	in := sample(t)
	var out bytes.Buffer
	c, err := Copy(&out, iotest.OneByteReader(bytes.NewReader(in)), 0)
	if err != nil || !bytes.Equal(out.Bytes(), in) || c != (Copied{Packets: 3, Commented: 1, Lost: 5, Bytes: int64(len(in))}) {
		t.Errorf("%+v, %v, %d of %d bytes", c, err, out.Len(), len(in))
	}
	out.Reset()
	if c, err = Copy(&out, bytes.NewReader(in), 2); err != nil || c.Packets != 2 {
		t.Errorf("limit: %+v, %v", c, err)
	}
	for cut := range len(in) {
		out.Reset()
		_, err := Copy(&out, bytes.NewReader(in[:cut]), 0)
		if err != nil && !errors.Is(err, ErrTruncated) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if !bytes.HasPrefix(in, out.Bytes()) || out.Len() > cut {
			t.Fatalf("cut at %d: wrong bytes", cut)
		}
		if again, err := Copy(io.Discard, &out, 0); err != nil {
			t.Fatalf("cut at %d: the copy is no whole file: %+v, %v", cut, again, err)
		}
	}
}

func TestCopyErrors(t *testing.T) {
	var we *WriteError
	pr, pw := io.Pipe()
	pr.CloseWithError(io.ErrClosedPipe)
	if _, err := Copy(pw, bytes.NewReader(sample(t)), 0); !errors.As(err, &we) || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("broken pipe: %v", err)
	}
	if _, err := Copy(io.Discard, bytes.NewReader(make([]byte, 100)), 0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("no pcapng: %v", err)
	}
	boom := errors.New("boom")
	if _, err := Copy(io.Discard, iotest.ErrReader(boom), 0); !errors.Is(err, boom) || errors.As(err, &we) {
		t.Errorf("source: %v", err)
	}
}

func FuzzCopy(f *testing.F) {
	f.Add(sample(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		if _, err := Copy(&out, bytes.NewReader(b), 0); err == nil && !bytes.Equal(out.Bytes(), b) {
			t.Error("copied without an error, but not everything")
		}
	})
}
