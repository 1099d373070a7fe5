package ucma

import (
	"slices"

	"golang.org/x/sys/unix"
)

// channel is an event channel with the events that the program has not read, oldest first.
type channel struct {
	number uint32
	unread []pending
}

// pending is an event that the program has not read.
type pending struct {
	event
	of   *id   // the identifier to which the event belongs; for a connection request, its listener
	made *id   // the new identifier that was made for a peer's connection request; nil for other events
	join *join // the membership in a multicast group to which the event belongs; nil if it belongs to none
}

// tell queues an event of an identifier. It drops the event if the program does not know the
// identifier yet (uid 0).
func (c *Config) tell(x *id, kind uint32, status int32, param any) {
	if x.uid == 0 {
		return
	}
	c.queue(x.channel, pending{of: x, event: newEvent(x.uid, x.handle, kind, status, param)})
}

// newEvent returns an event. param is nil, or the struct of its parameters.
func newEvent(uid uint64, handle, kind uint32, status int32, param any) event {
	ev := event{UID: uid, ID: handle, Kind: kind, Status: uint32(status)}
	if param != nil {
		copy(ev.Param[:], encode(param))
	}
	return ev
}

func (c *Config) queue(ch *channel, p pending) {
	ch.unread = append(ch.unread, p)
	c.Quota.Add(Event, 1)
	c.Tell(ch.number)
}

// maxUnread is the largest number of unread events of one identifier. It limits events that the
// program can cause repeatedly.
const maxUnread = 16

// full reports whether maxUnread events of an identifier are unread.
func (ch *channel) full(x *id) bool {
	n := 0
	for i := range ch.unread {
		if ch.unread[i].of == x {
			n++
		}
	}
	return n >= maxUnread
}

// withdraw removes the unread events that the function `which` selects, and returns their number.
func (ch *channel) withdraw(q Quota, which func(p *pending) bool) int {
	before := len(ch.unread)
	ch.unread = slices.DeleteFunc(ch.unread, func(p pending) bool { return which(&p) })
	n := before - len(ch.unread)
	q.Add(Event, -n)
	return n
}

// getEvent returns and removes the oldest event.
func (x call) getEvent(q Quota) (Result, error) {
	if len(x.ch.unread) == 0 {
		return Result{}, errNoEvent
	}
	p := x.ch.unread[0]
	x.ch.unread = slices.Delete(x.ch.unread, 0, 1)
	q.Add(Event, -1)
	p.of.reported++
	if p.join != nil {
		p.join.reported++
	}
	return Result{Data: encode(p.event)}, nil
}

// write executes WriteEvent: it queues an event that the program itself gives, as rdma_write_cm_event and
// rdma_resolve_addrinfo of rdma-core 60 and later do.
func (c *Config) write(x *id, a writeEvent) (Result, error) {
	switch {
	case a.Kind != userEvent && a.Kind != internalEvent:
		return Result{}, unix.EINVAL
	case x.channel.full(x):
		return Result{}, unix.ENOMEM
	}
	if err := mayTell(c.Quota); err != nil {
		return Result{}, err
	}
	c.tell(x, a.Kind, int32(a.Status), a.Param)
	return Result{}, nil
}

// migrate executes MigrateID: it moves an identifier, with its unread events, to the channel to
// which the program has written the command. Identifiers of connection requests among these events move along, with
// events of theirs: a program that guesses the number of such an identifier can use it before it has read the request.
func (m *Manager) migrate(x call, i *id, _ migrateID) (Result, error) {
	r := Result{Data: encode(Reported{i.reported}), Channel: i.channel.number}
	if i.channel == x.ch {
		return r, nil
	}
	goes := map[*id]bool{i: true}
	for _, p := range i.channel.unread {
		if p.of == i && p.made != nil {
			goes[p.made] = true
		}
	}
	var moved []pending
	from := i.channel
	from.unread = slices.DeleteFunc(from.unread, func(p pending) bool {
		if goes[p.of] {
			moved = append(moved, p)
		}
		return goes[p.of]
	})
	for k := range goes {
		k.channel = x.ch
	}
	m.cfg.Quota.Add(Event, -len(moved)) // the method queue counts the events again
	r.Withdrawn = uint32(len(moved))
	for _, p := range moved {
		m.cfg.queue(x.ch, p)
	}
	return r, nil
}
