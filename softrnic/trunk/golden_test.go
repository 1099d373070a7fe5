package trunk

import (
	"bytes"
	"crypto/ecdh"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// The table of states, as a diagram.
func TestStates(t *testing.T) {
	golden.Check(t, "testdata/end.dot", golden.Diagram(t, "end", edges))
}

// Keys and bytes are those that testdata/golden.py has computed, a program that knows nothing of this
// package.
func TestBytesOfAnotherProgram(t *testing.T) {
	text, err := os.ReadFile("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if want[name], err = hex.DecodeString(value); err != nil {
			t.Fatal(err)
		}
	}
	var secret Secret
	var near, far [32]byte
	for i := range secret {
		secret[i], near[i], far[i] = byte(i), byte(64+i), byte(128+i)
	}
	id := identify("golden", "leaf0-leaf1", secret)
	own, pub := pair(func() [32]byte { return near })
	if !bytes.Equal(pub[:], want["public"]) {
		t.Errorf("public key %x", pub)
	}
	other, err := ecdh.X25519().NewPrivateKey(far[:])
	if err != nil {
		t.Fatal(err)
	}
	peer := public(other.PublicKey().Bytes())
	greeting := id.appendHello(nil, &hello{side: Near, epoch: 65, public: pub, echo: peer, stamp: 0x0102030405060708})
	if !bytes.Equal(greeting, want["hello"]) {
		t.Errorf("hello\n%x, want\n%x", greeting, want["hello"])
	}
	fromNear, fromFar, ok := id.agree(own, peer, pub, peer)
	if keys := append(bytes.Clone(fromNear), fromFar...); !ok || !bytes.Equal(keys, want["keys"]) {
		t.Errorf("keys\n%x, want\n%x", keys, want["keys"])
	}
	e := New(Config{Rack: "golden", Trunk: "leaf0-leaf1", Secret: secret, MTU: 1500, Random: func() [32]byte { return near }})
	e.state = Up
	e.keys.now = &session{out: 7, tx: newSealing(fromNear), sent: 1, proved: true}
	frame := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5}, "golden"...)
	train, n := e.Pack([]packetio.Frame{{Data: frame}}, 0, make([]byte, 0, TrainSize))
	if n != 1 || train.Datagrams != 1 || !bytes.Equal(train.Data, want["data"]) {
		t.Errorf("datagram\n%x, want\n%x", train.Data, want["data"])
	}
}
