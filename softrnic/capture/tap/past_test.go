package tap

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

func TestPast(t *testing.T) {
	h := NewHub([]string{"cn0", "cn1"})
	if _, err := h.Past(io.Discard); !errors.Is(err, ErrNothingKept) {
		t.Errorf("nothing is kept: %v", err)
	}
	const limit, snaplen, sent = 20_000, 64, 1000
	h.Keep(limit, snaplen)
	frame := bytes.Repeat([]byte{7}, 1000)
	for i := range sent {
		if i == sent-1 {
			h.SetLink(2, "web")
		}
		h.Frame(int64(i), min(i%2+i/(sent-1), 2), Down, packetio.Frame{Data: frame}, "fault f1")
	}
	var buf bytes.Buffer
	n, err := h.Past(&buf)
	if err != nil {
		t.Fatal(err)
	}
	// The memory in use is between half and all of the buffer.
	if each := snaplen + recordHeader + 8; n < limit/2/each || n > limit/each+2 {
		t.Errorf("%d packets kept", n)
	}
	c, err := pcapng.Copy(io.Discard, bytes.NewReader(buf.Bytes()), 0)
	if err != nil || int(c.Packets) != n || int(c.Commented) != n {
		t.Errorf("copied %+v, %v; want %d packets", c, err, n)
	}
	if !bytes.Contains(buf.Bytes(), []byte("web down")) {
		t.Error("the link that came is not named")
	}
	if !h.Active() {
		t.Error("not active")
	}
}
