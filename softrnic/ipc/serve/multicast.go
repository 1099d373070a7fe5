package serve

import (
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// attachments are the multicast groups of a queue pair, which count against the quota of its
// application.
type attachments map[verbs.GID]struct{}

// attach attaches a queue pair to a group. To do it again changes nothing.
func (a *attachments) attach(c *client, qp verbs.QP, gid verbs.GID) error {
	if _, ok := (*a)[gid]; ok {
		return qp.AttachMulticast(gid)
	}
	if err := c.objects.reserve("attach multicast", kindAttachment, 0, 0); err != nil {
		return err
	}
	if err := qp.AttachMulticast(gid); err != nil {
		c.objects.giveBack(kindAttachment, 0, 0)
		return err
	}
	if *a == nil {
		*a = make(attachments)
	}
	(*a)[gid] = struct{}{}
	return nil
}

// detach ends an attachment.
func (a *attachments) detach(c *client, qp verbs.QP, gid verbs.GID) error {
	err := qp.DetachMulticast(gid)
	if _, ok := (*a)[gid]; ok && gone(err) {
		delete(*a, gid)
		c.objects.giveBack(kindAttachment, 0, 0)
	}
	return err
}

// forget gives back what a queue pair that is gone was counted as.
func (a *attachments) forget(c *client) {
	c.objects.release(need{kindAttachment, int64(len(*a))})
	*a = nil
}

func (x queues) attachMulticast(a proto.Multicast) (any, error) {
	o, err := x.find("attach multicast", a.H, kindQP)
	if err != nil {
		return nil, err
	}
	return nil, o.groups.attach(x.c, o.qp, a.Group)
}

func (x queues) detachMulticast(a proto.Multicast) (any, error) {
	o, err := x.find("detach multicast", a.H, kindQP)
	if err != nil {
		return nil, err
	}
	return nil, o.groups.detach(x.c, o.qp, a.Group)
}

// attachMulticast attaches a queue pair of an unmodified program to a group.
func (p programQueues) attachMulticast(a uverbs.MulticastArgs) (result, error) {
	o, err := named[*programQPObject](p.program, uQP, a.H)
	if err != nil {
		return result{}, err
	}
	return result{}, o.groups.attach(p.c, o.qp, a.Group)
}

// detachMulticast ends an attachment.
func (p programQueues) detachMulticast(a uverbs.MulticastArgs) (result, error) {
	o, err := named[*programQPObject](p.program, uQP, a.H)
	if err != nil {
		return result{}, err
	}
	if _, ok := o.groups[a.Group]; !ok {
		return result{}, unix.EINVAL
	}
	return result{}, o.groups.detach(p.c, o.qp, a.Group)
}
