package serve

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// get finds the object of a handle. Handles are this client's own: no number names another one's object.
func get[T any](c *client, op string, h uint32) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.objects[h].(T)
	if !ok && c.objects[h] == nil && h <= c.next {
		return o, &verbs.OpError{Op: op, Err: verbs.ErrClosed, Detail: "the object was destroyed"}
	}
	if !ok {
		return o, &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: fmt.Sprintf("handle %d names no such object of this application", h)}
	}
	return o, nil
}

// reserve takes a place for an object of a kind, and bytes of memory and of queues. giveBack undoes it.
func (c *client) reserve(op string, k kind, bytes, queued int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.s.cfg.Limits
	switch {
	case c.counts[k] >= l.of(k):
		return limitError(op, "this application has %d %s", c.counts[k], kindNames[k])
	case bytes < 0 || bytes > l.Bytes-c.bytes:
		return limitError(op, "%d bytes; this application has %d of %d", bytes, c.bytes, l.Bytes)
	case queued < 0 || queued > l.QueueBytes-c.queued:
		return limitError(op, "%d bytes of queues; this application has %d of %d", queued, c.queued, l.QueueBytes)
	}
	c.counts[k]++
	c.bytes += bytes
	c.queued += queued
	return nil
}

func (c *client) giveBack(k kind, bytes, queued int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[k]--
	c.bytes -= bytes
	c.queued -= queued
}

// put gives an object a handle. Numbers are not used again before all others were.
func (c *client) put(o any) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if c.next++; c.next != 0 && c.objects[c.next] == nil {
			c.objects[c.next] = o
			return c.next
		}
	}
}

// drop forgets a handle.
func (c *client) drop(h uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.objects, h)
}

// gone reports an object that died with its NIC: it can be forgotten.
func gone(err error) bool { return err == nil || isClosed(err) }
