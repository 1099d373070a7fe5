package plugin

import (
	"context"
	"errors"
	"testing"
)

// A load that is ended gives no more keys, and says that some are missing.
func TestTreeLoadEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in := LoadRequest{Keys: 10}
	next := in.feed(ctx, 0)
	keys := uint64(0)
	for {
		if _, _, more := next(); !more {
			break
		}
		if keys++; keys == 4 {
			cancel()
		}
	}
	if err := in.whole(ctx, keys, nil); keys != 4 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d keys: %v", keys, err)
	}
	if err := in.whole(ctx, in.Keys, nil); err != nil {
		t.Errorf("all keys: %v", err)
	}
	// A load that fails by itself was not ended, and says only why it has failed.
	failed := errors.New("the tree is full")
	if err := in.whole(t.Context(), keys, failed); !errors.Is(err, failed) || err.Error() != failed.Error() {
		t.Errorf("a load that fails: %v", err)
	}
}

// The old names of the two kinds of pages are accepted; only the new ones are written.
func TestNamesOfKinds(t *testing.T) {
	for _, name := range []string{"hardened", "published"} {
		if k, err := kindOf(name); err != nil || layouts[k] != name {
			t.Errorf("%s is %s, %v", name, layouts[k], err)
		}
	}
	for old, now := range map[string]string{"": "hardened", "sound": "hardened", "faithful": "published"} {
		if k, err := kindOf(old); err != nil || layouts[k] != now {
			t.Errorf("%q is %s, %v; want %s", old, layouts[k], err, now)
		}
	}
	if _, err := kindOf("paper"); err == nil {
		t.Error("a kind that there is not")
	}
}
