package v1alpha1

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopy returns a copy that shares nothing with r.
func (r *Rack) DeepCopy() *Rack {
	c := *r
	r.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.NodeSelector, c.Spec.Users = maps.Clone(r.Spec.NodeSelector), slices.Clone(r.Spec.Users)
	c.Status.Lost = slices.Clone(r.Status.Lost)
	c.Status.Conditions = make([]metav1.Condition, len(r.Status.Conditions))
	for i := range r.Status.Conditions {
		r.Status.Conditions[i].DeepCopyInto(&c.Status.Conditions[i])
	}
	return &c
}

// DeepCopyObject is DeepCopy for clients.
func (r *Rack) DeepCopyObject() runtime.Object { return r.DeepCopy() }

// DeepCopyObject returns a copy that shares nothing with l.
func (l *RackList) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = make([]Rack, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopy()
	}
	return &c
}

// DeepCopy returns a copy that shares nothing with l.
func (l *RackLeaf) DeepCopy() *RackLeaf {
	c := *l
	l.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Hosts = slices.Clone(l.Spec.Hosts)
	c.Status.Ports, c.Status.Trunks = slices.Clone(l.Status.Ports), slices.Clone(l.Status.Trunks)
	return &c
}

// DeepCopyObject is DeepCopy for clients.
func (l *RackLeaf) DeepCopyObject() runtime.Object { return l.DeepCopy() }

// DeepCopyObject returns a copy that shares nothing with l.
func (l *RackLeafList) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = make([]RackLeaf, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopy()
	}
	return &c
}
