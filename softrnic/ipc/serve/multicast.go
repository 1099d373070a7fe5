package serve

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// attachments are the multicast groups of a queue pair. They count against the application's quota.
type attachments map[verbs.GID]struct{}

// attach attaches a queue pair to a group. A second attachment to the same group changes nothing.
func (a *attachments) attach(c *client, qp verbs.QP, gid verbs.GID) error {
	if _, ok := (*a)[gid]; ok {
		return qp.AttachMulticast(gid)
	}
	const op = "attach multicast"
	if err := c.objects.reserve(op, kindAttachment, 0, 0); err != nil {
		return err
	}
	if err := c.s.groups.take(op, c, gid); err != nil {
		c.objects.giveBack(kindAttachment, 0, 0)
		return err
	}
	if err := qp.AttachMulticast(gid); err != nil {
		c.s.groups.giveBack(c, gid)
		c.objects.giveBack(kindAttachment, 0, 0)
		return err
	}
	if *a == nil {
		*a = make(attachments)
	}
	(*a)[gid] = struct{}{}
	return nil
}

func (a *attachments) detach(c *client, qp verbs.QP, gid verbs.GID) error {
	err := qp.DetachMulticast(gid)
	if _, ok := (*a)[gid]; ok && gone(err) {
		delete(*a, gid)
		c.s.groups.giveBack(c, gid)
		c.objects.giveBack(kindAttachment, 0, 0)
	}
	return err
}

// forget gives back the quotas for the attachments of a queue pair that was destroyed.
func (a *attachments) forget(c *client) {
	c.objects.release(need{kindAttachment, int64(len(*a))})
	for gid := range *a {
		c.s.groups.giveBack(c, gid)
	}
	*a = nil
}

// groupShares counts how many queue pairs each client has in each multicast group. On the NIC, a
// group has a limited number of places for queue pairs. One client may have a quarter of them; all
// clients together leave an eighth to the daemon.
type groupShares struct {
	most int // the number of places of a group; never changes

	mu   sync.Mutex // guards the field below
	used map[verbs.GID]map[*client]int
}

func (s *groupShares) take(op string, c *client, gid verbs.GID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := 0
	for _, n := range s.used[gid] {
		all += n
	}
	own := s.used[gid][c]
	if one, sum := max(1, s.most/4), s.most-s.most/8; own >= one || all >= sum {
		return limitError(op, "this program has %d queue pairs in group %v, of at most %d; all programs together have %d, of at most %d", own, gid, one, all, sum)
	}
	if s.used == nil {
		s.used = make(map[verbs.GID]map[*client]int)
	}
	if s.used[gid] == nil {
		s.used[gid] = make(map[*client]int)
	}
	s.used[gid][c]++
	return nil
}

func (s *groupShares) giveBack(c *client, gid verbs.GID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.used[gid]
	if of[c]--; of[c] <= 0 {
		delete(of, c)
	}
	if len(of) == 0 {
		delete(s.used, gid)
	}
}

func (s *groupShares) forget(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for gid, of := range s.used {
		if delete(of, c); len(of) == 0 {
			delete(s.used, gid)
		}
	}
}

func (x queues) attachMulticast(a proto.Multicast) (any, error) {
	return nil, x.on("attach multicast", a.H, kindQP, func(o *queueObject) error { return o.groups.attach(x.c, o.qp, a.Group) })
}

func (x queues) detachMulticast(a proto.Multicast) (any, error) {
	return nil, x.on("detach multicast", a.H, kindQP, func(o *queueObject) error { return o.groups.detach(x.c, o.qp, a.Group) })
}

func (x *programQueues) attachMulticast(o *programQPObject, a uverbs.MulticastArgs) (result, error) {
	return result{}, o.groups.attach(x.p.c, o.qp, a.Group)
}

// detachMulticast ends an attachment that attachMulticast has made.
func (x *programQueues) detachMulticast(o *programQPObject, a uverbs.MulticastArgs) (result, error) {
	if _, ok := o.groups[a.Group]; !ok {
		return result{}, unix.EINVAL
	}
	return result{}, o.groups.detach(x.p.c, o.qp, a.Group)
}
