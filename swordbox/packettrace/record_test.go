package packettrace

import (
	"bytes"
	_ "embed"
	"encoding/hex"
	"strings"
	"testing"
)

// A record of a UDP packet, whose bytes a Python script has computed by struct and zlib.
//
//go:embed testdata/record.hex
var golden string

func goldenRecord(t *testing.T) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(golden, "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRecordGolden(t *testing.T) {
	want := goldenRecord(t)
	var r Record
	if !r.Parse(want) {
		t.Fatal("the record is refused")
	}
	if r.Number != 1 || r.Time != 1000002000 || r.Epoch != 0x9e3749b3 || r.Length != 122 || r.Port != 1 || r.Packets != 1 || r.Taken != 1 || len(r.Head) != HeadLen {
		t.Errorf("%+v", r)
	}
	if got := r.AppendTo([]byte("before")); !bytes.Equal(got[6:], want) {
		t.Errorf("got  %x\nwant %x", got[6:], want)
	}
}

// A frame that is shorter than a record's room is padded with zeros, and comes back with its length.
func TestShortFrame(t *testing.T) {
	in := Record{Number: 9, Epoch: 1, Length: 60, Packets: 1, Taken: 1, Head: bytes.Repeat([]byte{7}, 60)}
	b := in.AppendTo(nil)
	var out Record
	if len(b) != Size || !out.Parse(b) || !bytes.Equal(out.Head, in.Head) {
		t.Errorf("%x: %+v", b, out)
	}
}

// No changed bit and no cut makes another record, and a record that is half of one and half of another
// is refused.
func TestDamagedRecords(t *testing.T) {
	good := goldenRecord(t)
	var r Record
	for bit := range 8 * Size {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		if r.Parse(b) {
			t.Fatalf("bit %d: %+v", bit, r)
		}
	}
	other := (&Record{Number: 4097, Epoch: 0x9e3749b3, Length: 122, Packets: 1, Taken: 1, Head: good[32:124]}).AppendTo(nil)
	for at := 1; at < Size; at++ {
		torn := append(bytes.Clone(other[:at]), good[at:]...)
		if r.Parse(torn) && !bytes.Equal(torn, good) && !bytes.Equal(torn, other) {
			t.Fatalf("torn at %d: %+v", at, r)
		}
	}
	for n := range Size {
		if r.Parse(good[:n]) {
			t.Fatalf("%d bytes are a record", n)
		}
	}
	if r.Parse(make([]byte, Size)) {
		t.Error("zeros are a record")
	}
}

// Records that no ring writes are refused although their checksum is right.
func TestImpossibleRecords(t *testing.T) {
	for name, r := range map[string]Record{
		"no number": {Epoch: 1, Packets: 1, Taken: 1}, "no epoch": {Number: 1, Packets: 1, Taken: 1},
		"nothing taken": {Number: 1, Epoch: 1, Packets: 1}, "more taken than there are": {Number: 1, Epoch: 1, Packets: 1, Taken: 2},
	} {
		var out Record
		if out.Parse(r.AppendTo(nil)) {
			t.Error(name)
		}
	}
}
