#!/bin/bash
# A node: containerd, kubelet and kube-proxy in namespaces of their own. It is started by nsenter and unshare; the variables
# are set by node.go. MODE is first after a start of the machine.
set -e
mount --make-rslave /
mount -t tmpfs -o mode=755,size=1g tmpfs /run
mkdir -p /run/containerd /run/lock /run/netns /var/lib/kubelet /var/lib/containerd /etc/cni/net.d /opt/cni/bin /var/log/pods /var/log/containers
for m in kubelet:/var/lib/kubelet containerd:/var/lib/containerd cni-conf:/etc/cni/net.d cni-bin:/opt/cni/bin log/pods:/var/log/pods log/containers:/var/log/containers; do
	mkdir -p "$R/${m%%:*}"; mount --bind "$R/${m%%:*}" "${m#*:}"
done
mount --make-rshared /var/lib/kubelet
# The kubelet and kube-proxy "set" these without touching the machine.
for f in vm/overcommit_memory:1 vm/panic_on_oom:0 kernel/panic:10 kernel/panic_on_oops:1 kernel/keys/root_maxkeys:1000000 kernel/keys/root_maxbytes:25000000; do
	n=${f%%:*}; mkdir -p "$R/fake"; echo "${f#*:}" > "$R/fake/${n//\//_}"
	mount --bind "$R/fake/${n//\//_}" "/proc/sys/$n"
done
mount --make-rshared /
hostname "$NAME"
for c in $CGROUPS; do echo $$ > "/sys/fs/cgroup/$c/$GROUP/cgroup.procs"; done
containerd --config "$R/containerd.toml" >> "$R/log/containerd.log" 2>&1 &
for i in $(seq 600); do ctr version > /dev/null 2>&1 && break; sleep 0.1; done
for t in $IMAGES; do ctr -n k8s.io images import "$t" >> "$R/log/import.log" 2>&1; done
ctr -n k8s.io images label "$PAUSE" io.cri-containerd.pinned=pinned >> "$R/log/import.log" 2>&1
"$BIN/kube-proxy" --kubeconfig="$PROXY" --hostname-override="$NAME" --cluster-cidr=10.244.0.0/16 --proxy-mode=iptables --healthz-bind-address= \
	--conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0s --conntrack-tcp-timeout-close-wait=0s >> "$R/log/proxy.log" 2>&1 &
echo ready > "$R/up"
# The kubelet is started again when it is killed, unless the node is to stop.
while [ ! -e "$R/stopped" ]; do
	"$BIN/kubelet" --config="$R/kubelet.yaml" --kubeconfig="$KUBECONFIG" --hostname-override="$NAME" --node-ip="$ADDRESS" --root-dir=/var/lib/kubelet --v=2 >> "$R/log/kubelet.log" 2>&1 &
	echo $! > "$R/kubelet.pid"
	wait $! || true
	sleep 0.2
done
