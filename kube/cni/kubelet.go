package cni

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pods "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// kubelet asks the kubelet which devices a Pod has. socket is that of PodResources; "" means the usual one.
type kubelet struct{ socket string }

// The usual socket, and how long the kubelet may take.
const (
	kubeletSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"
	kubeletWait   = 10 * time.Second
)

// What Pods have in limits, as in api/v1alpha1: one that uses a NIC, and one that is a leaf or a host.
const (
	resourceNIC  = "rdmalab.io/nic"
	resourcePort = "rdmalab.io/port"
)

// slot returns the number of the Pod's device of a resource.
func (k kubelet) slot(namespace, name, resource string) (string, error) {
	socket := cmp.Or(k.socket, kubeletSocket)
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer conn.Close() // nothing is written any more
	ctx, cancel := context.WithTimeout(context.Background(), kubeletWait)
	defer cancel()
	list, err := pods.NewPodResourcesListerClient(conn).List(ctx, &pods.ListPodResourcesRequest{})
	if err != nil {
		return "", fmt.Errorf("ask the kubelet at %s: %w (%w)", socket, err, errAgain)
	}
	for _, p := range list.GetPodResources() {
		if p.GetNamespace() != namespace || p.GetName() != name {
			continue
		}
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				if d.GetResourceName() == resource && len(d.GetDeviceIds()) > 0 && isName(d.GetDeviceIds()[0]) {
					return d.GetDeviceIds()[0], nil
				}
			}
		}
	}
	return "", fmt.Errorf("%w: a container of Pod %s/%s needs the limit %s: 1", errRefused, namespace, name, resource)
}
