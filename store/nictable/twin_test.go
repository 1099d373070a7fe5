package nictable_test

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/nictable"
)

// A key with the fingerprint of another one is not found and changes nothing; there is no room for it.
func TestFingerprints(t *testing.T) {
	g := newRig(t, nictable.Shape{Items: 8, Value: 100})
	g.alone(func(rt verbs.Runtime, c *nictable.Client) error {
		const key = 7
		other := nictable.Twin(key)
		if err := c.Insert(key, kv.MakeValue(key, 1, 50), kvtest.Soon(rt)); err != nil {
			return err
		}
		_, got := c.Get(other, nil, kvtest.Soon(rt))
		for name, x := range map[string]struct{ err, want error }{
			"INSERT": {c.Insert(other, kv.MakeValue(other, 1, 50), kvtest.Soon(rt)), kv.ErrFull},
			"PUT":    {c.Put(other, kv.MakeValue(other, 1, 50), kvtest.Soon(rt)), kv.ErrNotFound},
			"DELETE": {c.Delete(other, kvtest.Soon(rt)), kv.ErrNotFound},
			"GET":    {got, kv.ErrNotFound},
		} {
			if !errors.Is(x.err, x.want) {
				t.Errorf("%s of another key with the fingerprint: %v, want %v", name, x.err, x.want)
			}
		}
		v, err := c.Get(key, nil, kvtest.Soon(rt))
		if err == nil {
			_, err = kv.CheckValue(key, v)
		}
		if err != nil {
			t.Errorf("the key itself: %v", err)
		}
		return nil
	})
}
