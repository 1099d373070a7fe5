package passive_test

import (
	"bytes"
	"testing"

	"github.com/rdmalab/rdmalab/store/passive"
)

// A sealed value is read back only whole and behind its own words, whatever follows it.
func TestSeal(t *testing.T) {
	value := []byte("a value of 21 bytes..")
	b := passive.Seal(nil, value, 7, 9)
	if len(b) != passive.SealLen(2)+len(value) {
		t.Errorf("%d bytes", len(b))
	}
	long := append(bytes.Clone(b), "the rest of an older one"...)
	for _, in := range [][]byte{b, long} {
		if got, ok := passive.Unseal(in, 7, 9); !ok || !bytes.Equal(got, value) {
			t.Errorf("%q, %v", got, ok)
		}
	}
	if again := passive.Seal([]byte("before"), value, 7, 9); !bytes.Equal(again, append([]byte("before"), b...)) {
		t.Errorf("behind other bytes: %q", again)
	}
	for _, words := range [][2]uint64{{7, 8}, {8, 9}} {
		if _, ok := passive.Unseal(b, words[0], words[1]); ok {
			t.Errorf("the words %d are taken for 7 and 9", words)
		}
	}
	for i := range b {
		b[i] ^= 0x40
		if _, ok := passive.Unseal(b, 7, 9); ok {
			t.Errorf("byte %d is another one: taken for whole", i)
		}
		b[i] ^= 0x40
		if _, ok := passive.Unseal(b[:i], 7, 9); ok {
			t.Errorf("%d of %d bytes: taken for whole", i, len(b))
		}
	}
}
